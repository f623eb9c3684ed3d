/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor's report, as text for people or as one JSON object. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shim/text.h"
#include "tools/doctor.h"

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
 * reach a terminal raw. */
static void put(const char *before, const char *text, const char *after)
{
    struct ips_text json = {0};
    ips_text_json(&json, text);
    int length = json.failed || !json.data ? 0 : (int)json.used - 2;
    printf("%s%.*s%s", before, length, length ? json.data + 1 : "", after);
    ips_text_free(&json);
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
    printf("]}\n");
}

static void print_machine(const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    const char *iommu = iommu_text(view);
    printf("%u GPU%s", view->topology.gpus, view->topology.gpus == 1 ? "" : "s");
    if (*host->driver)
        put(", driver ", host->driver, "");
    if (iommu)
        printf(", IOMMU %s", iommu);
    if (*host->product)
        put(", ", host->product, "");
    printf("\n\n");
}

static void print_findings(const struct doctor_report *report,
                           enum doctor_severity severity)
{
    for (size_t i = 0; i < report->nfindings; i++) {
        const struct doctor_finding *finding = &report->findings[i];
        if (finding->severity != severity)
            continue;
        printf("%-8s %s", severity_names[severity], finding->id);
        put("  ", finding->subject, "\n");
        put("    ", finding->text, "\n");
        put("    fix: ", finding->fix, "\n");
    }
}

/* One line a check, with the first thing that it missed. */
static void print_unseen(const struct doctor_report *report)
{
    for (size_t i = 0; i < doctor_nchecks; i++) {
        unsigned count = 0;
        for (size_t k = 0; k < report->nunseen; k++)
            if (!strcmp(report->unseen[k].check, doctor_checks[i].id) && !count++)
                put("not seen: ", report->unseen[k].text, "");
        if (count > 1)
            printf(", and %u more", count - 1);
        if (count)
            printf(" (it needs %s)\n", doctor_checks[i].needs);
    }
}

static void print_text(const struct doctor_report *report, const struct doctor_view *view)
{
    unsigned count[DOCTOR_FAULT + 1] = {0}, missed = 0;
    print_machine(view);
    for (int severity = DOCTOR_FAULT; severity > DOCTOR_GOOD; severity--)
        print_findings(report, (enum doctor_severity)severity);
    print_unseen(report);
    for (size_t i = 0; i < report->nfindings; i++)
        count[report->findings[i].severity]++;
    for (size_t i = 0; i < doctor_nchecks; i++)
        missed += doctor_missed(report, doctor_checks[i].id) != 0;
    if (report->nfindings || report->nunseen)
        printf("\n");
    if (doctor_worst(report, NULL) < DOCTOR_WARNING)
        printf("healthy, as far as was seen: ");
    printf("%zu checks, %u faults, %u warnings, %u notes; %u checks did not see all\n",
           doctor_nchecks, count[DOCTOR_FAULT], count[DOCTOR_WARNING], count[DOCTOR_NOTE],
           missed);
}

void doctor_print(const struct doctor_report *report, const struct doctor_view *view,
                  int json)
{
    if (json)
        print_json(report, view);
    else
        print_text(report, view);
}
