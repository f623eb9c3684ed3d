/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of words, as the files that `ipcshim` writes for the shim are made of them.
 * Reading is bounded by the text's end, and depends on no locale. Pure functions. */
#ifndef IPS_POLICY_TOKENS_H
#define IPS_POLICY_TOKENS_H

#include <stddef.h>
#include <stdint.h>

/* A piece of the text; nothing in it is terminated. */
struct ips_token {
    const char *at;
    size_t length;
};

/* The words of the line at *at, which moves behind it; the first IPS_LINE_TOKENS of them.
 * "#" begins a remark. */
#define IPS_LINE_TOKENS 8 /* more than any line may have */
unsigned ips_tokens_next(const char **at, const char *end, struct ips_token *ret_tokens);

/* Takes the words of a line; whether it is sound. */
typedef int ips_line_taker(void *context, const struct ips_token *words, unsigned count);

/* Gives lines "key = value ..." to `key` and all others that have words to `row`, up to
 * the first that is not sound. The number of that, from 1 on; 0: all are. */
unsigned ips_tokens_read(const char *text, size_t bytes, ips_line_taker *key,
                         ips_line_taker *row, void *context);

int ips_token_is(const struct ips_token *word, const char *text);
/* Into ret[room], terminated. Whether it fits, and is printable: people get to see it. */
int ips_token_copy(const struct ips_token *word, char *ret, size_t room);
/* A whole number of digits alone; "12" or "12.5", with a point. Whether it is one, and
 * (its whole part) is at most `most`. */
int ips_token_whole(const struct ips_token *word, uint64_t most, uint64_t *ret);
int ips_token_decimal(const struct ips_token *word, uint64_t most, double *ret);

#endif
