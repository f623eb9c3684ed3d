/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of options, and messages, for all subcommands. */
#include "tools/tool.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/policy.h"

int tool_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("ipcshim: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return TOOL_USAGE;
}

/* The directories above the file, as far as they are missing. */
static void make_directories(const char *path, unsigned mode)
{
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", path);
    for (char *at = directory + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        if (!mkdir(directory, mode))
            chmod(directory, mode); /* whatever the umask */
        *at = '/';
    }
}

FILE *tool_create(const char *path, unsigned mode, char *ret_temporary, size_t room)
{
    const int length = snprintf(ret_temporary, room, "%s.XXXXXX", path);
    FILE *out = NULL;
    make_directories(path, mode);
    const int fd =
        length > 0 && (size_t)length < room ? mkostemp(ret_temporary, O_CLOEXEC) : -1;
    if (fd >= 0)
        out = fdopen(fd, "w");
    if (!out)
        tool_fail("cannot write %s: %s", path, strerror(errno));
    return out;
}

int tool_commit(FILE *out, const char *path, const char *temporary)
{
    int failed = ferror(out) || fchmod(fileno(out), 0644);
    failed |= fclose(out) != 0;
    if (!failed && !rename(temporary, path))
        return 0;
    tool_fail("cannot write %s: %s", path, strerror(errno));
    unlink(temporary);
    return -1;
}

/* Levenshtein, words of up to 31 characters. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[32], n = (unsigned)strnlen(b, 31);
    for (unsigned j = 0; j <= n; j++)
        row[j] = j;
    for (unsigned i = 1; *a; a++, i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= n; j++) {
            unsigned change = diagonal + (*a != b[j - 1]);
            unsigned skip = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < skip ? change : skip;
        }
    }
    return row[n];
}

const char *tool_nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    unsigned least = 2 + (unsigned)strlen(word) / 2;
    for (size_t i = 0; i < count; i++) {
        if (*word && !strncmp(word, candidates[i], strlen(word)))
            return candidates[i];
        unsigned d = distance(word, candidates[i]);
        if (d < least) {
            least = d;
            best = candidates[i];
        }
    }
    return best;
}

int tool_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno || value < least || value > most)
        return -1;
    *ret = value;
    return 0;
}

int tool_parse_size(const char *text, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || errno)
        return -1;
    const char *units = "KMG",
               *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    unsigned shift = 0;
    if (unit) {
        shift = 10 * (unsigned)(unit - units + 1);
        end++;
        if (toupper((unsigned char)*end) == 'B')
            end++;
    }
    if (*end || value > UINT64_MAX >> shift)
        return -1;
    *ret = (uint64_t)value << shift;
    return 0;
}

int tool_parse_type(const char *name)
{
    for (int type = 0; type < IPS_TYPES; type++)
        if (!strcmp(name, ips_type_name(type)))
            return type;
    return -1;
}

int tool_parse_op(const char *name)
{
    for (int op = 0; op < IPS_OPS; op++)
        if (!strcmp(name, ips_op_name(op)))
            return op;
    return -1;
}

int tool_parse_link(const char *name)
{
    for (int link = 0; link < IPS_LINKS; link++)
        if (!strcmp(name, ips_link_name(link)))
            return link;
    return -1;
}

const char *tool_size_text(uint64_t bytes, char *text)
{
    static const char *const units[] = {"B", "KB", "MB", "GB"};
    unsigned unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 16, "%llu %s", (unsigned long long)bytes, units[unit]);
    return text;
}
