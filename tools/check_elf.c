/* SPDX-License-Identifier: Apache-2.0 */
/* What an ELF file says of itself: its dynamic symbols, its name and what it needs. Reads
 * only within the file's bounds, whatever the file holds. */
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/check.h"

struct image {
    const char *data;
    size_t bytes;
};

static struct image map_file(const char *path)
{
    struct image image = {0};
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not held up by a FIFO */
    if (fd < 0)
        return image;
    if (!fstat(fd, &status) && S_ISREG(status.st_mode) && status.st_size > 0) {
        void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED)
            image = (struct image){data, (size_t)status.st_size};
    }
    close(fd);
    return image;
}

static void unmap(struct image image)
{
    if (image.data)
        munmap((void *)(uintptr_t)image.data, image.bytes);
}

/* `count` entries of `size` bytes at an offset, or NULL when they lie outside. */
static const void *within(struct image image, uint64_t offset, uint64_t count,
                          size_t size)
{
    if (offset > image.bytes || count > (image.bytes - offset) / size || offset % 8)
        return NULL;
    return image.data + offset;
}

/* A string of a string table, or "". */
static const char *string_at(struct image image, const Elf64_Shdr *table, uint64_t at)
{
    if (at >= table->sh_size || table->sh_offset > image.bytes ||
        table->sh_size > image.bytes - table->sh_offset)
        return "";
    const char *text = image.data + table->sh_offset + at;
    return memchr(text, 0, table->sh_size - at) ? text : "";
}

/* All NCCLs have fewer names; more are a file made to keep the reader busy. */
#define MOST_NAMES 4096

static void add_name(struct check_elf *elf, const char *name)
{
    size_t count = 0;
    while (elf->names && elf->names[count])
        count++;
    char **names =
        count < MOST_NAMES ? realloc(elf->names, (count + 2) * sizeof *names) : NULL;
    if (!names)
        return;
    names[count] = strdup(name);
    names[count + 1] = NULL;
    elf->names = names;
}

int check_elf_defines(const struct check_elf *elf, const char *name)
{
    for (char **own = elf->names; own && *own; own++)
        if (!strcmp(*own, name))
            return 1;
    return 0;
}

static void read_symbols(struct image image, const Elf64_Shdr *section,
                         const Elf64_Shdr *names, struct check_elf *elf)
{
    uint64_t count = section->sh_size / sizeof(Elf64_Sym);
    const Elf64_Sym *symbols =
        within(image, section->sh_offset, count, sizeof(Elf64_Sym));
    for (uint64_t i = 0; symbols && i < count; i++) {
        const char *name = string_at(image, names, symbols[i].st_name);
        if (name[0] == 'n' && !strncmp(name, "nccl", 4)) {
            if (symbols[i].st_shndx == SHN_UNDEF)
                elf->imports_nccl = 1;
            else
                add_name(elf, name);
            if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(name, "ncclAllReduce"))
                elf->exports_nccl = 1;
        } else if (symbols[i].st_shndx != SHN_UNDEF && !strcmp(name, "ipcshimGetInfo")) {
            elf->is_shim = 1;
        }
    }
}

static void read_dynamic(struct image image, const Elf64_Shdr *section,
                         const Elf64_Shdr *names, struct check_elf *elf)
{
    uint64_t count = section->sh_size / sizeof(Elf64_Dyn), used = 0;
    const Elf64_Dyn *entries =
        within(image, section->sh_offset, count, sizeof(Elf64_Dyn));
    elf->needed = entries ? calloc(count + 1, sizeof *elf->needed) : NULL;
    for (uint64_t i = 0; elf->needed && i < count; i++) {
        const char *text = string_at(image, names, entries[i].d_un.d_val);
        if (entries[i].d_tag == DT_NEEDED)
            elf->needed[used++] = strdup(text);
        else if (entries[i].d_tag == DT_SONAME && !elf->soname)
            elf->soname = strdup(text);
    }
}

static int has_loader(struct image image, const Elf64_Ehdr *head)
{
    const Elf64_Phdr *parts =
        within(image, head->e_phoff, head->e_phnum, sizeof(Elf64_Phdr));
    for (unsigned i = 0; parts && i < head->e_phnum; i++)
        if (parts[i].p_type == PT_INTERP || parts[i].p_type == PT_DYNAMIC)
            return 1;
    return 0;
}

static void read_elf(struct image image, struct check_elf *elf)
{
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image.data;
    if (image.bytes < sizeof *head || memcmp(image.data, ELFMAG, SELFMAG) ||
        image.data[EI_CLASS] != ELFCLASS64)
        return;
    elf->readable = 1;
    elf->is_static = head->e_type != ET_DYN && !has_loader(image, head);
    const Elf64_Shdr *sections =
        within(image, head->e_shoff, head->e_shnum, sizeof(Elf64_Shdr));
    /* Of each kind a file has one; 65535 that overlap would take hours. */
    for (unsigned i = 0, symbols = 0; sections && i < head->e_shnum; i++) {
        if (sections[i].sh_link >= head->e_shnum)
            continue;
        const Elf64_Shdr *names = &sections[sections[i].sh_link];
        if (sections[i].sh_type == SHT_DYNSYM && !symbols++)
            read_symbols(image, &sections[i], names, elf);
        else if (sections[i].sh_type == SHT_DYNAMIC && !elf->needed)
            read_dynamic(image, &sections[i], names, elf);
    }
}

const struct check_elf *check_elf_of(const char *root, const char *path)
{
    static struct entry {
        struct entry *next;
        char *path;
        struct check_elf elf;
    } * known;
    char *full = check_text("%s%s", root, path);
    for (struct entry *entry = known; entry; entry = entry->next)
        if (!strcmp(entry->path, full)) {
            free(full);
            return &entry->elf;
        }
    static const struct check_elf nothing;
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return &nothing;
    struct image image = map_file(full);
    if (image.data)
        read_elf(image, &entry->elf);
    unmap(image);
    entry->path = full;
    entry->next = known;
    known = entry;
    return &entry->elf;
}

int check_elf_holds_nccl(const char *root, const char *path)
{
    /* A parameter that every NCCL since 2.4 reads, and nobody else. Put together here, so
     * that this program does not hold it. */
    char mark[32], full[PATH_MAX];
    snprintf(mark, sizeof mark, "NCCL_%s_BUFFSIZE", "LL128");
    snprintf(full, sizeof full, "%s%s", root, path);
    struct image image = map_file(full);
    int found = image.data && memmem(image.data, image.bytes, mark, strlen(mark)) != NULL;
    unmap(image);
    return found;
}

int check_same_file(const char *root, const char *a, const char *b)
{
    struct stat first, second;
    char full[2][PATH_MAX];
    snprintf(full[0], sizeof full[0], "%s%s", root, a);
    snprintf(full[1], sizeof full[1], "%s%s", root, b);
    return !stat(full[0], &first) && !stat(full[1], &second) &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}
