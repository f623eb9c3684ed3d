/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's report, as text for people or as one JSON object. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/text.h"
#include "tools/doctor.h"

#define COLUMNS 88

static const char *const severity_names[] = {"good", "note", "warning", "fault"};

static void quoted(const char *text)
{
    struct ips_text json = {0};
    ips_text_json(&json, text);
    fputs(json.failed ? "null" : json.data, stdout);
    ips_text_free(&json);
}

static void key(const char *name, const char *value, int first)
{
    printf("%s\"%s\": ", first ? "" : ", ", name);
    quoted(value);
}

/* As JSON escapes it, without the quotes: what a foreign tree or variable holds must not
 * reach a terminal raw. The caller frees it. */
static char *shown(const char *text)
{
    struct ips_text json = {0};
    ips_text_json(&json, text);
    if (json.failed || json.used < 2) {
        ips_text_free(&json);
        return strdup("?");
    }
    memmove(json.data, json.data + 1, json.used - 2);
    json.data[json.used - 2] = '\0';
    return json.data;
}

static void put(const char *before, const char *text)
{
    char *line = shown(text);
    printf("%s%s", before, line ? line : "?");
    free(line);
}

static const char *iommu_text(const struct doctor_view *view)
{
    static const char *const names[] = {NULL, "off", "identity", "translating"};
    enum doctor_iommu most = DOCTOR_IOMMU_UNKNOWN;
    for (unsigned gpu = 0; gpu < view->topology.gpus; gpu++)
        if (doctor_iommu_of(view, (int)gpu) > most)
            most = doctor_iommu_of(view, (int)gpu);
    return names[most];
}

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

static void json_machine(const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    char text[IPS_ADDRESS_BYTES];
    printf(" \"machine\": {\"gpus\": [");
    for (unsigned i = 0; i < view->topology.gpus; i++)
        printf("%s\"%s\"", i ? ", " : "",
               ips_address_text(view->topology.device[i].address, text));
    printf("]");
    key("driver", or_null(host->driver), 0);
    key("iommu", iommu_text(view), 0);
    key("kernel_options", or_null(host->iommu_option), 0);
    printf(", \"virtual\": %s", host->hypervisor < 0 ? "null"
                                : host->hypervisor   ? "true"
                                                     : "false");
    key("product", or_null(host->product), 0);
    if (host->shm_bytes >= 0)
        printf(", \"shm_bytes\": %" PRId64 "},\n", host->shm_bytes);
    else
        printf(", \"shm_bytes\": null},\n");
}

/* What was measured just now. */
static void json_links(const struct ips_verdicts *v)
{
    if (!v)
        return;
    printf(",\n \"links\": [");
    for (unsigned i = 0; i < v->rows; i++) {
        const struct ips_verdict_row *row = &v->row[i];
        printf("%s", i ? ",\n  {" : "\n  {");
        key("from", v->gpu[row->from][0], 1);
        key("to", row->to == IPS_VERDICTS_HOST ? "host" : v->gpu[row->to][0], 0);
        key("turn", ips_link_turn_name((int)row->turn), 0);
        key("method", ips_link_method_name((int)row->method), 0);
        key("verdict", ips_link_kind_name((int)row->kind), 0);
        if (row->gbps > 0)
            printf(", \"gbps\": %.3f}", row->gbps);
        else
            printf(", \"gbps\": null}");
    }
    printf("]");
}

static void print_json(const struct doctor_report *report, const struct doctor_view *view)
{
    enum doctor_severity worst = doctor_worst(report, NULL);
    printf("{\"severity\": \"%s\", \"healthy\": %s, \"watched_s\": %u,\n",
           severity_names[worst], worst < DOCTOR_WARNING ? "true" : "false",
           view->watched_s);
    json_machine(view);
    printf(" \"checks\": [");
    for (size_t i = 0; i < doctor_nchecks; i++) {
        const char *id = doctor_checks[i].id;
        printf("%s", i ? ",\n  {" : "\n  {");
        key("id", id, 1);
        key("needs", doctor_checks[i].needs, 0);
        key("severity", severity_names[doctor_worst(report, id)], 0);
        printf(", \"complete\": %s}", doctor_missed(report, id) ? "false" : "true");
    }
    printf("],\n \"findings\": [");
    for (size_t i = 0; i < report->nfindings; i++) {
        const struct doctor_finding *finding = &report->findings[i];
        printf("%s", i ? ",\n  {" : "\n  {");
        key("severity", severity_names[finding->severity], 1);
        key("id", finding->id, 0);
        key("check", finding->check, 0);
        key("subject", finding->subject, 0);
        key("text", finding->text, 0);
        key("fix", finding->fix, 0);
        printf("}");
    }
    printf("],\n \"unseen\": [");
    for (size_t i = 0; i < report->nunseen; i++) {
        printf("%s", i ? ",\n  {" : "\n  {");
        key("check", report->unseen[i].check, 1);
        key("text", report->unseen[i].text, 0);
        printf("}");
    }
    printf("]");
    json_links(view->probed);
    printf("}\n");
}

static void print_machine(const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    const char *iommu = iommu_text(view);
    printf("%u GPU%s", view->topology.gpus, view->topology.gpus == 1 ? "" : "s");
    if (*host->driver)
        put(", driver ", host->driver);
    if (iommu)
        printf(", IOMMU %s", iommu);
    if (*host->product)
        put(", ", host->product);
    printf("\n\n");
}

/* Words in lines of COLUMNS, each line after `indent` spaces; the first begins at the
 * column `at`. */
static void put_wrapped(const char *text, unsigned at, unsigned indent)
{
    for (const char *word = text; *word;) {
        unsigned length = (unsigned)strcspn(word, " ");
        if (at > indent && at + 1 + length > COLUMNS) {
            printf("\n%*s", (int)indent, "");
            at = indent;
        } else if (word != text) {
            putchar(' ');
            at++;
        }
        printf("%.*s", (int)length, word);
        at += length;
        word += length;
        word += strspn(word, " ");
    }
    putchar('\n');
}

static void put_paragraph(const char *before, const char *text)
{
    char *line = shown(text);
    printf("    %s", before);
    put_wrapped(line, 4 + (unsigned)strlen(before), 4);
    free(line);
}

static int same_finding(const struct doctor_finding *a, const struct doctor_finding *b)
{
    return a->severity == b->severity && !strcmp(a->id, b->id) &&
           !strcmp(a->text, b->text) && !strcmp(a->fix, b->fix);
}

/* The finding with all subjects that it was said of, unless one before was the same. */
static void print_finding(const struct doctor_report *report, size_t at)
{
    const struct doctor_finding *finding = &report->findings[at];
    struct ips_text subjects = {0};
    for (size_t i = 0; i < report->nfindings; i++) {
        if (!same_finding(&report->findings[i], finding))
            continue;
        if (i < at)
            return;
        char *subject = shown(report->findings[i].subject);
        ips_text_add(&subjects, "%s%s", subjects.used ? ", " : "", subject);
        free(subject);
    }
    int column = printf("%-8s %s  ", severity_names[finding->severity], finding->id);
    put_wrapped(subjects.data ? subjects.data : "?", (unsigned)column, 4);
    ips_text_free(&subjects);
    put_paragraph("", finding->text);
    put_paragraph("fix: ", finding->fix);
}

/* One line a check, with the first thing that it missed. */
static void print_unseen(const struct doctor_report *report)
{
    for (size_t i = 0; i < doctor_nchecks; i++) {
        unsigned count = 0;
        for (size_t k = 0; k < report->nunseen; k++)
            if (!strcmp(report->unseen[k].check, doctor_checks[i].id) && !count++)
                put("not seen: ", report->unseen[k].text);
        if (count > 1)
            printf(", and %u more", count - 1);
        if (count)
            printf(" (it needs %s)\n", doctor_checks[i].needs);
    }
}

static const char *plural(unsigned count)
{
    return count == 1 ? "" : "s";
}

static void print_text(const struct doctor_report *report, const struct doctor_view *view)
{
    unsigned count[DOCTOR_FAULT + 1] = {0}, missed = 0;
    print_machine(view);
    for (int severity = DOCTOR_FAULT; severity > DOCTOR_GOOD; severity--)
        for (size_t i = 0; i < report->nfindings; i++)
            if ((int)report->findings[i].severity == severity)
                print_finding(report, i);
    print_unseen(report);
    for (size_t i = 0; i < report->nfindings; i++)
        count[report->findings[i].severity]++;
    for (size_t i = 0; i < doctor_nchecks; i++)
        missed += doctor_missed(report, doctor_checks[i].id) != 0;
    if (report->nfindings || report->nunseen)
        printf("\n");
    if (doctor_worst(report, NULL) < DOCTOR_WARNING)
        printf("healthy, as far as was seen: ");
    printf("%zu checks: %u fault%s, %u warning%s, %u note%s", doctor_nchecks,
           count[DOCTOR_FAULT], plural(count[DOCTOR_FAULT]), count[DOCTOR_WARNING],
           plural(count[DOCTOR_WARNING]), count[DOCTOR_NOTE], plural(count[DOCTOR_NOTE]));
    if (missed)
        printf("; %u could not see all", missed);
    printf("\n");
}

void doctor_print(const struct doctor_report *report, const struct doctor_view *view,
                  int json)
{
    if (json)
        print_json(report, view);
    else
        print_text(report, view);
}
