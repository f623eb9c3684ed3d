/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a text into lines and words, and reads numbers in it. */
#include "policy/tokens.h"

#include <string.h>

int ips_token_is(const struct ips_token *word, const char *text)
{
    return word->length == strlen(text) && !memcmp(word->at, text, word->length);
}

int ips_token_copy(const struct ips_token *word, char *ret, size_t room)
{
    if (word->length >= room)
        return 0;
    for (size_t i = 0; i < word->length; i++)
        if (word->at[i] <= ' ' || word->at[i] > '~')
            return 0;
    memcpy(ret, word->at, word->length);
    ret[word->length] = 0;
    return 1;
}

/* Digits only: what strtoul takes beside them has no place here, and depends on nothing.
 */
int ips_token_whole(const struct ips_token *word, uint64_t most, uint64_t *ret)
{
    uint64_t value = 0;
    if (!word->length || word->length > 19)
        return 0;
    for (size_t i = 0; i < word->length; i++) {
        if (word->at[i] < '0' || word->at[i] > '9')
            return 0;
        value = value * 10 + (uint64_t)(word->at[i] - '0');
    }
    *ret = value;
    return value <= most;
}

/* "12", "12.5": a point whatever the locale. */
int ips_token_decimal(const struct ips_token *word, uint64_t most, double *ret)
{
    const char *point = memchr(word->at, '.', word->length);
    struct ips_token whole = {word->at,
                              point ? (size_t)(point - word->at) : word->length};
    uint64_t units, parts = 0;
    double scale = 1;
    if (!ips_token_whole(&whole, most, &units))
        return 0;
    if (point) {
        const struct ips_token rest = {point + 1, word->length - whole.length - 1};
        if (rest.length > 9 || !ips_token_whole(&rest, UINT64_MAX, &parts))
            return 0;
        for (size_t i = 0; i < rest.length; i++)
            scale *= 10;
    }
    *ret = (double)units + (double)parts / scale;
    return 1;
}

unsigned ips_tokens_next(const char **at, const char *end, struct ips_token *ret_tokens)
{
    const char *next = *at;
    unsigned count = 0;
    while (next < end && *next != '\n') {
        const char *start = next;
        while (next < end && *next != ' ' && *next != '\t' && *next != '\n' &&
               *next != '\r')
            next++;
        if (next == start) {
            next++;
        } else if (*start == '#') {
            while (next < end && *next != '\n')
                next++;
        } else {
            if (count < IPS_LINE_TOKENS)
                ret_tokens[count] = (struct ips_token){start, (size_t)(next - start)};
            count++;
        }
    }
    *at = next + (next < end);
    return count < IPS_LINE_TOKENS ? count : IPS_LINE_TOKENS;
}

unsigned ips_tokens_read(const char *text, size_t bytes, ips_line_taker *key,
                         ips_line_taker *row, void *context)
{
    const char *at = text, *end = text + bytes;
    for (unsigned line = 1; at < end; line++) {
        struct ips_token words[IPS_LINE_TOKENS];
        const unsigned count = ips_tokens_next(&at, end, words);
        const int is_key = count >= 3 && ips_token_is(&words[1], "=");
        if (count && !(is_key ? key : row)(context, words, count))
            return line;
    }
    return 0;
}
