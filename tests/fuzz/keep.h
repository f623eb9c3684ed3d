/* SPDX-License-Identifier: Apache-2.0 */
/* For code whose memory lives until its command ends: remembers what it allocates, so
 * that a target can free it after each input. Included before that code's .c file. */
#ifndef IPS_TESTS_FUZZ_KEEP_H
#define IPS_TESTS_FUZZ_KEEP_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT (1 << 16)
static void *kept[KEPT];
static size_t nkept;

static inline void *keep(void *memory)
{
    if (memory && nkept < KEPT)
        kept[nkept++] = memory;
    return memory;
}

/* Not kept any more, and freed: what getline made was never kept. */
static inline void keep_drop(void *memory)
{
    for (size_t i = nkept; memory && i-- > 0;)
        if (kept[i] == memory) {
            kept[i] = kept[--nkept];
            break;
        }
    free(memory);
}

static inline void *keep_realloc(void *memory, size_t bytes)
{
    for (size_t i = nkept; memory && i-- > 0;)
        if (kept[i] == memory) {
            kept[i] = kept[--nkept];
            break;
        }
    return keep(realloc(memory, bytes));
}

static inline int keep_vasprintf(char **ret, const char *format, va_list args)
{
    int length = vasprintf(ret, format, args);
    if (length >= 0)
        keep(*ret);
    return length;
}

static inline void keep_nothing(void)
{
    while (nkept)
        free(kept[--nkept]);
}

#define calloc(count, bytes) keep(calloc(count, bytes))
#define realloc(memory, bytes) keep_realloc(memory, bytes)
#define strdup(text) keep(strdup(text))
#define vasprintf(ret, format, args) keep_vasprintf(ret, format, args)
#define free(memory) keep_drop(memory)

#endif
