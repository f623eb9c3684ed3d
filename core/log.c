/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: one write() per line, so that lines of several ranks do not mix. */
#include "core/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define PATIENCE_MS 100

static enum ips_log_level threshold = IPS_LOG_WARN;

void ips_log_set_level(enum ips_log_level level)
{
    __atomic_store_n(&threshold, level, __ATOMIC_RELAXED);
}

int ips_log_enabled(enum ips_log_level level)
{
    return level <= __atomic_load_n(&threshold, __ATOMIC_RELAXED);
}

int ips_log_writable(int fd)
{
    struct pollfd out = {.fd = fd, .events = POLLOUT};
    return poll(&out, 1, PATIENCE_MS) == 1 && out.revents == POLLOUT;
}

void ips_log(enum ips_log_level level, const char *format, ...)
{
    if (!ips_log_enabled(level))
        return;
    int saved = errno;
    char line[1024];
    int used = snprintf(line, sizeof line, "ipcshim: ");
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (body > 0) {
        used += body;
        if ((size_t)used > sizeof line - 2)
            used = sizeof line - 2;
    }
    line[used++] = '\n';
    /* A pipe that nobody reads costs a line, not a rank that hangs in a write. */
    if (ips_log_writable(STDERR_FILENO)) {
        ssize_t ignored = write(STDERR_FILENO, line, (size_t)used);
        (void)ignored;
    }
    errno = saved;
}
