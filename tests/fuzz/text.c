/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what is written: any text becomes one valid JSON string on one line, and any
 * trace path expands within its room. */
#include <errno.h>

#include "shim/text.h"
#include "shim/trace_format.h"
#include "tests/fuzz/fuzz.h"

/* The end of one UTF-8 sequence, by the table of RFC 3629; NULL where it is none. */
static const unsigned char *skip_sequence(const unsigned char *at)
{
    static const unsigned char rows[][4] = {
        /* first byte from, to, second from, to; then the length follows from the first */
        {0xc2, 0xdf, 0x80, 0xbf}, {0xe0, 0xe0, 0xa0, 0xbf}, {0xe1, 0xec, 0x80, 0xbf},
        {0xed, 0xed, 0x80, 0x9f}, {0xee, 0xef, 0x80, 0xbf}, {0xf0, 0xf0, 0x90, 0xbf},
        {0xf1, 0xf3, 0x80, 0xbf}, {0xf4, 0xf4, 0x80, 0x8f}};
    if (at[0] < 0x80)
        return at + 1;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const unsigned char *row = rows[i];
        if (at[0] < row[0] || at[0] > row[1] || at[1] < row[2] || at[1] > row[3])
            continue;
        size_t length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
        for (size_t byte = 2; byte < length; byte++)
            if ((at[byte] & 0xc0) != 0x80)
                return NULL;
        return at + length;
    }
    return NULL;
}

static const unsigned char *skip_escape(const unsigned char *at)
{
    if (at[1] == '"' || at[1] == '\\')
        return at + 2;
    MUST(at[1] == 'u');
    for (int i = 2; i < 6; i++)
        MUST(strchr("0123456789abcdef", at[i]) && at[i]);
    return at + 6;
}

static void check_json(const struct ips_text *text)
{
    const unsigned char *at = (const unsigned char *)text->data;
    MUST(text->used == strlen(text->data) && text->used < text->room);
    MUST(*at++ == '"');
    while (*at != '"') {
        MUST(*at >= 0x20 && *at != 0x7f && !(*at == 0xc2 && at[1] < 0xa0));
        at = *at == '\\' ? skip_escape(at) : skip_sequence(at);
        MUST(at != NULL);
    }
    MUST(!at[1]);
}

static void check_expand(const char *path)
{
    for (size_t room = 1; room <= 64; room += 21) {
        char *into = malloc(room);
        MUST(into != NULL);
        int error = ips_trace_expand(path, 4711, 3, into, room);
        MUST(error == 0 || error == -ENAMETOOLONG || error == -EINVAL);
        if (!error)
            MUST(strnlen(into, room) < room && *into);
        free(into);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ips_text text = {0};
    char *string = malloc(size + 1);
    MUST(string != NULL);
    memcpy(string, data, size);
    string[size] = '\0';
    ips_text_json(&text, string);
    MUST(!text.failed);
    check_json(&text);
    ips_text_free(&text);
    check_expand(string);
    free(string);
    return 0;
}
