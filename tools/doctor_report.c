/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's growing lists. Nothing is freed: the command ends soon. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor.h"
#include "tools/tool.h"

static void *held(void *memory)
{
    if (!memory) {
        tool_fail("doctor: out of memory");
        exit(TOOL_USAGE);
    }
    return memory;
}

/* Room for one more. */
static void *grown(void *list, size_t count, size_t bytes)
{
    if (count & (count - 1)) /* full only at powers of two */
        return list;
    return held(realloc(list, (count ? 2 * count : 1) * bytes));
}

static char *formatted(const char *format, va_list args)
    __attribute__((format(printf, 1, 0)));
static char *formatted(const char *format, va_list args)
{
    char *text = NULL;
    return held(vasprintf(&text, format, args) < 0 ? NULL : text);
}

void doctor_find(struct doctor_report *report, enum doctor_severity severity,
                 const char *id, const char *subject, const char *fix, const char *format,
                 ...)
{
    va_list args;
    va_start(args, format);
    char *text = formatted(format, args);
    va_end(args);
    report->findings =
        grown(report->findings, report->nfindings, sizeof *report->findings);
    report->findings[report->nfindings++] = (struct doctor_finding){
        report->check->id, id, severity, held(strdup(subject)), text, held(strdup(fix))};
}

void doctor_not_seen(struct doctor_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = formatted(format, args);
    va_end(args);
    report->unseen = grown(report->unseen, report->nunseen, sizeof *report->unseen);
    report->unseen[report->nunseen++] = (struct doctor_unseen){report->check->id, text};
}

enum doctor_severity doctor_worst(const struct doctor_report *report, const char *check)
{
    enum doctor_severity worst = DOCTOR_GOOD;
    for (size_t i = 0; i < report->nfindings; i++)
        if ((!check || !strcmp(report->findings[i].check, check)) &&
            report->findings[i].severity > worst)
            worst = report->findings[i].severity;
    return worst;
}

int doctor_missed(const struct doctor_report *report, const char *check)
{
    for (size_t i = 0; i < report->nunseen; i++)
        if (!strcmp(report->unseen[i].check, check))
            return 1;
    return 0;
}
