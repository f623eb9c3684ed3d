/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target is one function that takes any bytes; it must not
 * crash, hang or break one of its MUSTs. libFuzzer calls it where clang is, replay.c does
 * everywhere else. */
#ifndef IPS_TESTS_FUZZ_H
#define IPS_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(what)                                                             \
    do {                                                                       \
        if (!(what)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                           \
        }                                                                      \
    } while (0)

/* The input cut at a byte into texts, each in memory of its own so that a read beyond
 * its end is seen. NULL-terminated; at most FUZZ_TEXTS. */
#define FUZZ_TEXTS 256
struct fuzz_texts {
    char *text[FUZZ_TEXTS + 1];
    size_t count;
};

static inline void fuzz_cut(struct fuzz_texts *texts, const uint8_t *data, size_t size,
                            char separator)
{
    memset(texts, 0, sizeof *texts);
    while (size && texts->count < FUZZ_TEXTS) {
        const uint8_t *end = memchr(data, separator, size);
        size_t length = end ? (size_t)(end - data) : size;
        char *text = malloc(length + 1);
        if (!text)
            return;
        memcpy(text, data, length);
        text[length] = '\0';
        texts->text[texts->count++] = text;
        length += end != NULL;
        data += length;
        size -= length;
    }
}

static inline void fuzz_free(struct fuzz_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->text[i]);
}

#endif
