/* SPDX-License-Identifier: Apache-2.0 */
/* The head of the JSON of `ipcshim bench --vs-nccl`: what a reader must know to compare
 * it with another. */
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench_vs.h"
#include "tools/commit.h"

extern char **environ;

static void member(FILE *json, const char *name, const char *value)
{
    fprintf(json, "\"%s\": ", name);
    bench_json_text(json, value && *value ? value : NULL);
}

/* Text after `key` and a colon in a file, or its first line when key is NULL. */
static const char *line_of(const char *path, const char *key, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    const char *found = NULL;
    while (file && !found && fgets(text, (int)size, file)) {
        text[strcspn(text, "\n")] = '\0';
        if (!key)
            found = text;
        else if (!strncmp(text, key, strlen(key)) && strchr(text, ':'))
            found = strchr(text, ':') + 1;
    }
    if (file)
        fclose(file);
    return found ? found + strspn(found, " \t") : NULL;
}

static void json_versions(FILE *json, const struct bench_page *page)
{
    char text[256], cuda[24] = "", nccl[24] = "";
    int c = page->cuda_version, n = page->nccl_version;
    if (c)
        snprintf(cuda, sizeof cuda, "%d.%d", c / 1000, c % 1000 / 10);
    if (n)
        snprintf(nccl, sizeof nccl, "%d.%d.%d", n / 10000, n / 100 % 100, n % 100);
    member(json, "version", IPCSHIM_VERSION);
    fprintf(json, ", ");
    member(json, "commit", IPCSHIM_COMMIT);
    fprintf(json, ",\n");
    member(json, "driver",
           line_of("/sys/module/nvidia/version", NULL, text, sizeof text));
    fprintf(json, ", ");
    member(json, "cuda", cuda);
    fprintf(json, ", ");
    member(json, "nccl", nccl);
    fprintf(json, ",\n");
}

static void json_date(FILE *json)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    member(json, "date", text);
    fprintf(json, ",\n");
}

static void json_machine(FILE *json, const struct bench_page *page)
{
    struct utsname names = {0};
    char text[256];
    uname(&names);
    fprintf(json, "\"machine\": {");
    member(json, "host", names.nodename);
    fprintf(json, ", ");
    member(json, "kernel", names.release);
    fprintf(json, ", ");
    member(json, "architecture", names.machine);
    fprintf(json, ",\n ");
    member(json, "cpu", line_of("/proc/cpuinfo", "model name", text, sizeof text));
    fprintf(json, ", \"cores\": %ld,\n \"gpus\": [", sysconf(_SC_NPROCESSORS_ONLN));
    for (unsigned i = 0; i < IPS_MAX_RANKS && page->gpus[i][0]; i++) {
        fprintf(json, "%s", i ? ", " : "");
        bench_json_text(json, page->gpus[i]);
    }
    fprintf(json, "]},\n");
}

static void json_environment(FILE *json)
{
    static const char *const prefixes[] = {"NCCL_", "IPCSHIM_", "CUDA_", "SIMGPU_",
                                           "SIMNCCL_"};
    unsigned written = 0;
    fprintf(json, "\"environment\": {");
    for (char **variable = environ; *variable; variable++)
        for (unsigned i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
            char name[128];
            size_t length = strcspn(*variable, "=");
            if (strncmp(*variable, prefixes[i], strlen(prefixes[i])) ||
                length >= sizeof name)
                continue;
            snprintf(name, sizeof name, "%.*s", (int)length, *variable);
            fprintf(json, "%s\n ", written++ ? "," : "");
            bench_json_text(json, name);
            fprintf(json, ": ");
            bench_json_text(json, *variable + length + 1);
        }
    fprintf(json, "},\n");
}

static void json_method(FILE *json, const struct bench_options *o)
{
    const char *most = getenv("NCCL_MAX_CTAS");
    fprintf(json,
            "\"seed\": %llu, \"warmup\": %u, \"iters\": %u, \"samples\": %u, "
            "\"in_place\": %s, \"offset_elems\": %llu,\n\"checked_elems\": %u, ",
            (unsigned long long)o->seed, o->warmup, o->iters, o->samples,
            o->in_place ? "true" : "false", (unsigned long long)o->offset_elems,
            o->check_elems);
    member(json, "nccl_max_ctas", most);
    fprintf(
        json,
        ",\n\"method\": \"samples are taken in pairs in one process, engine and NCCL "
        "in turn, a sample is the slowest rank's; ratio: median of the pairs' ratios; "
        "ratio_bound: distribution-free interval of that median from the order "
        "statistics (sign test), at least 95 %%\",\n");
}

void bench_json_head(FILE *json, const struct bench_page *page)
{
    const struct bench_options *o = &page->options;
    fprintf(json, "{\n\"format\": \"ipcshim-vs-nccl-1\", \"simulated\": %s,\n",
            o->simulated ? "true" : "false");
    if (o->simulated)
        fprintf(json, "\"note\": \"times are simulated, not performance\",\n");
    json_versions(json, page);
    json_date(json);
    json_machine(json, page);
    json_environment(json);
    json_method(json, o);
    fprintf(json, "\"rows\": [");
}
