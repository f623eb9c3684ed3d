/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of ELF files, which `ipcshim check` points at whatever a process has
 * loaded or names. */
#include "tests/fuzz/fuzz.h"

#include "tools/check_elf.c"

char *check_text(const char *format, ...)
{
    return strdup(format); /* paths are not what is tested here */
}

static void free_list(char **list)
{
    for (char **text = list; text && *text; text++)
        free(*text);
    free(list);
}

static size_t count(char **list)
{
    size_t texts = 0;
    while (list && list[texts])
        texts++;
    return texts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct check_elf elf = {0};
    char *copy = malloc(size ? size : 1); /* aligned as a mapped file is */
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    read_elf((struct image){copy, size}, &elf);
    MUST(!elf.exports_nccl || check_elf_defines(&elf, "ncclAllReduce"));
    MUST(elf.readable || (!elf.needed && !elf.names && !elf.soname && !elf.is_shim));
    MUST(count(elf.names) <= size / sizeof(Elf64_Sym)); /* no symbol is read twice */
    MUST(count(elf.needed) <= size / sizeof(Elf64_Dyn));
    free(copy);
    free(elf.soname);
    free_list(elf.needed);
    free_list(elf.names);
    return 0;
}
