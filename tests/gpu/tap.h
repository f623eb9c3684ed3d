/* SPDX-License-Identifier: Apache-2.0 */
/* A test program's results as TAP, one line a case. One file of the program says
 * TAP_DEFINE. */
#ifndef TEST_TAP_H
#define TEST_TAP_H

#include <stdarg.h>
#include <stdio.h>

extern int tap_count, tap_failed;
#define TAP_DEFINE int tap_count, tap_failed

/* Reports one case; gives `good` back. */
static inline int tap(int good, const char *format, ...)
{
    va_list arguments;
    printf("%sok %d - ", good ? "" : "not ", ++tap_count);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    fflush(stdout);
    tap_failed += !good;
    return good;
}

/* A comparison that shows both sides when it fails. */
static inline int tap_is(long long got, long long want, const char *what)
{
    if (got != want)
        printf("# %s: got %lld, want %lld\n", what, got, want);
    return tap(got == want, "%s", what);
}

static inline int tap_end(void)
{
    printf("1..%d\n", tap_count);
    return tap_failed != 0;
}

#endif
