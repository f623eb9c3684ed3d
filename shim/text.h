/* SPDX-License-Identifier: Apache-2.0 */
/* A growing piece of text, for JSON lines and tables. After a failed allocation it stays
 * short and `failed` is set; nothing else goes wrong. */
#ifndef IPS_SHIM_TEXT_H
#define IPS_SHIM_TEXT_H

#include <stddef.h>

struct ips_text {
    char *data; /* NULL as long as it is empty */
    size_t used, room;
    int failed;
};

void ips_text_add(struct ips_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The string as JSON, or null for NULL. Quotes, backslashes and control characters are
 * escaped; bytes that are no valid UTF-8 (in a path) become U+FFFD. */
void ips_text_json(struct ips_text *text, const char *string);

void ips_text_free(struct ips_text *text);

#endif
