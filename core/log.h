/* SPDX-License-Identifier: Apache-2.0 */
/* One line per message on stderr, prefixed "ipcshim: ". Law: the first function that
 * knows that something is an error logs its exact cause; everyone above only propagates.
 * Nothing is printed above the level; the default is warn. Thread-safe; errno is
 * preserved. */
#ifndef IPS_CORE_LOG_H
#define IPS_CORE_LOG_H

enum ips_log_level { IPS_LOG_ERROR, IPS_LOG_WARN, IPS_LOG_INFO, IPS_LOG_TRACE };

void ips_log_set_level(enum ips_log_level level);
int ips_log_enabled(enum ips_log_level level);
/* Whether a write to it would neither wait for long nor raise SIGPIPE. */
int ips_log_writable(int fd);
void ips_log(enum ips_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
