/* SPDX-License-Identifier: Apache-2.0 */
/* Growing text and JSON strings. */
#include "shim/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void ips_text_add(struct ips_text *text, const char *format, ...)
{
    for (;;) {
        va_list args;
        va_start(args, format);
        int wanted = vsnprintf(text->data ? text->data + text->used : NULL,
                               text->room - text->used, format, args);
        va_end(args);
        if (wanted < 0) {
            text->failed = 1;
            return;
        }
        if ((size_t)wanted < text->room - text->used) {
            text->used += (size_t)wanted;
            return;
        }
        size_t room = 2 * (text->used + (size_t)wanted) + 1024;
        char *data = realloc(text->data, room);
        if (!data) {
            text->failed = 1;
            return;
        }
        text->data = data;
        text->room = room;
    }
}

/* Length of the UTF-8 sequence that starts here, or 0 if there is no valid one. */
static int sequence_length(const unsigned char *at)
{
    int length = at[0] < 0x80 ? 1 : at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (length > 1 && (at[0] < 0xc2 || at[0] > 0xf4))
        return 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, and what lies beyond U+10FFFF. */
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return length;
}

void ips_text_json(struct ips_text *text, const char *string)
{
    if (!string) {
        ips_text_add(text, "null");
        return;
    }
    ips_text_add(text, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at;) {
        int length = sequence_length(at);
        if (!length)
            ips_text_add(text, "\\ufffd");
        else if (*at == '"' || *at == '\\')
            ips_text_add(text, "\\%c", *at);
        else if (*at < 0x20 || *at == 0x7f)
            ips_text_add(text, "\\u%04x", *at);
        else if (*at == 0xc2 && at[1] < 0xa0) /* control characters too: C1 */
            ips_text_add(text, "\\u%04x", at[1]);
        else
            ips_text_add(text, "%.*s", length, (const char *)at);
        at += length ? length : 1;
    }
    ips_text_add(text, "\"");
}

void ips_text_free(struct ips_text *text)
{
    free(text->data);
    *text = (struct ips_text){0};
}
