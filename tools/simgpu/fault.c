/* SPDX-License-Identifier: Apache-2.0 */
/* Fault injection and call logs of the stand-ins; each library has its own copy. The
 * environment is read once, at the first call. */
#include "tools/simgpu/fault.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RULES_MAX 32

struct rule {
    char function[64];
    int nth, error, seen;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rule_count, ready, log_fd = -1;

static void parse_rules(const char *text)
{
    while (text && *text && rule_count < RULES_MAX) {
        struct rule *rule = &rules[rule_count];
        if (sscanf(text, " %63[^:,]:%d:%d", rule->function, &rule->nth, &rule->error) ==
            3)
            rule_count++;
        else
            fprintf(stderr, "simgpu: can't read the rule %s\n", text);
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
}

static void start(const char *prefix)
{
    if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
        return;
    pthread_mutex_lock(&lock);
    if (!ready) {
        char name[64];
        snprintf(name, sizeof name, "%s_FAIL", prefix);
        parse_rules(secure_getenv(name));
        snprintf(name, sizeof name, "%s_LOG", prefix);
        const char *path = secure_getenv(name);
        if (path && *path)
            log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
}

int sim_fault(const char *prefix, const char *function)
{
    int error = 0;
    start(prefix);
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->function, function) != 0)
            continue;
        int call = __atomic_add_fetch(&rule->seen, 1, __ATOMIC_RELAXED);
        if (!error && (rule->nth == 0 || rule->nth == call))
            error = rule->error;
    }
    if (error < 0)
        raise(-error);
    return error < 0 ? 0 : error;
}

int sim_logging(const char *prefix)
{
    start(prefix);
    return log_fd >= 0;
}

void sim_log(const char *format, ...)
{
    char line[512];
    va_list arguments;
    int head = snprintf(line, sizeof line, "%d ", (int)getpid());
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    size_t length = strnlen(line, sizeof line - 2);
    line[length++] = '\n';
    if (body < 0 || write(log_fd, line, length) < 0)
        return; /* a log that can't be written must not change what is tested */
}
