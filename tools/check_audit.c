/* SPDX-License-Identifier: Apache-2.0 */
/* libipcshim-audit.so, loaded by LD_AUDIT for `ipcshim check -- PROGRAM`: notes which
 * objects each process loads, and which object answers each nccl name, also by dlsym,
 * RTLD_DEEPBIND and dlmopen. Changes no binding. One line is one write to
 * $IPS_CHECK_DIR/PID, so threads and forked children need no lock. */
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT unsigned la_version(unsigned version);
EXPORT unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie);
EXPORT void la_preinit(uintptr_t *cookie);
EXPORT uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from,
                              uintptr_t *to, unsigned *flags, const char *name);

static pid_t owner; /* who noted last: a fork changes it */

static void append(const char *line, size_t length)
{
    char path[PATH_MAX];
    const char *directory = secure_getenv("IPS_CHECK_DIR");
    if (!directory)
        return;
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, line, length) < 0)
        length = 0; /* a full disk: the check sees less */
    close(fd);
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    char line[2 * PATH_MAX + 128];
    if (owner && owner != getpid()) {
        int length = snprintf(line, sizeof line, "F\t%d\n", (int)owner);
        append(line, (size_t)length);
    }
    owner = getpid();
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length > 0 && length < (int)sizeof line)
        append(line, (size_t)length);
}

/* What decides how NCCL is found. */
static void note_environment(void)
{
    static const char *const names[] = {"LD_", "IPCSHIM_", "VLLM_NCCL_", "SGLANG_",
                                        "FASTVIDEO_NCCL_"};
    if (!secure_getenv("IPS_CHECK_DIR"))
        return;
    for (char **entry = environ; entry && *entry; entry++)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            if (!strncmp(*entry, names[i], strlen(names[i])) && !strchr(*entry, '\n'))
                note("E\t%s\n", *entry);
}

/* The main program's name is empty. */
static const char *path_of(const struct link_map *map)
{
    static char self[PATH_MAX];
    if (map->l_name && map->l_name[0])
        return map->l_name;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    return self;
}

unsigned la_version(unsigned version)
{
    note("P\n");
    note_environment();
    return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie)
{
    *cookie = (uintptr_t)map;
    note("O\t%ld\t%s\n", (long)space, path_of(map));
    return LA_FLG_BINDTO | LA_FLG_BINDFROM;
}

void la_preinit(uintptr_t *cookie)
{
    (void)cookie;
    note("I\n");
}

uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to,
                       unsigned *flags, const char *name)
{
    (void)index;
    if (!strncmp(name, "nccl", 4)) {
        char source[PATH_MAX];
        snprintf(source, sizeof source, "%s", path_of((const struct link_map *)*from));
        note("B\t%d\t%s\t%s\t%s\n", (*flags & LA_SYMB_DLSYM) != 0, name, source,
             path_of((const struct link_map *)*to));
    }
    return symbol->st_value;
}
