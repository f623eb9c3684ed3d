/* SPDX-License-Identifier: Apache-2.0 */
/* Settings: parsing, ranges, unknown names, printing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/settings.h"

static int failures;
static void check(int line, int good, const char *what)
{
    if (!good) {
        printf("line %d: not so: %s\n", line, what);
        failures++;
    }
}
#define CHECK(what) check(__LINE__, !!(what), #what)

static struct ips_settings settings;
static struct ips_settings_problems problems;

static void parse(const char *entry)
{
    char *environment[] = {(char *)"PATH=/bin", (char *)entry, NULL};
    ips_settings_parse(environment, &settings, &problems);
}

static void test_defaults(void)
{
    parse(NULL);
    CHECK(problems.count == 0);
    CHECK(settings.enable == 1 && !settings.summary && !settings.links_any);
    CHECK(settings.log_level == 1 && !settings.trace && !settings.nccl_lib);
    CHECK(settings.mem_max_bytes == 256 << 20);
    CHECK(memcmp(&settings.policy, &ips_policy_defaults, sizeof settings.policy) == 0);
}

static void test_values(void)
{
    static const struct {
        const char *entry;
        uint64_t bytes;
    } sizes[] = {
        {"IPCSHIM_MAX_BYTES=auto", IPS_MAX_BYTES_AUTO},
        {"IPCSHIM_MAX_BYTES=0", 0},           {"IPCSHIM_MAX_BYTES=65536", 65536},
        {"IPCSHIM_MAX_BYTES=64K", 65536},     {"IPCSHIM_MAX_BYTES=64k", 65536},
        {"IPCSHIM_MAX_BYTES=64KiB", 65536},   {"IPCSHIM_MAX_BYTES=4M", 4 << 20},
        {"IPCSHIM_MAX_BYTES=1G", 1ull << 30}, {"IPCSHIM_MAX_BYTES=1GB", 1ull << 30},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        parse(sizes[i].entry);
        if (problems.count || settings.policy.max_bytes != sizes[i].bytes)
            printf("%s\n", sizes[i].entry);
        CHECK(!problems.count && settings.policy.max_bytes == sizes[i].bytes);
    }
    parse("IPCSHIM_PROTO=LL");
    CHECK(settings.policy.proto == IPS_LL);
    parse("IPCSHIM_PROTO=ll128");
    CHECK(settings.policy.proto == IPS_LL128);
    parse("IPCSHIM_PROTO=Simple");
    CHECK(settings.policy.proto == IPS_SIMPLE);
    parse("IPCSHIM_PROTO=auto");
    CHECK(settings.policy.proto == IPS_PROTO_AUTO);
    parse("IPCSHIM_VERIFY=100");
    CHECK(settings.policy.verify == 100);
    parse("IPCSHIM_LINKS=any");
    CHECK(settings.links_any == 1);
    parse("IPCSHIM_LOG=trace");
    CHECK(settings.log_level == 3);
    parse("IPCSHIM_TRACE=/tmp/x.%p");
    CHECK(settings.trace && strcmp(settings.trace, "/tmp/x.%p") == 0);
    parse("IPCSHIM_ENABLE=0");
    CHECK(settings.enable == 0 && problems.count == 0);
    parse("IPCSHIM_ENABLE=");
    CHECK(settings.enable == 1 && problems.count == 0);
}

static void test_invalid(void)
{
    static const char *const entries[] = {
        "IPCSHIM_MAX_BYTES=lots",
        "IPCSHIM_MAX_BYTES=-1",
        "IPCSHIM_MAX_BYTES=64Q",
        "IPCSHIM_MAX_BYTES=64Kx",
        "IPCSHIM_MAX_BYTES=17179869184G",
        "IPCSHIM_MAX_BYTES=99999999999999999999999",
        "IPCSHIM_MAX_BYTES= 1",
        "IPCSHIM_PROTO=LL256",
        "IPCSHIM_PROTO=L",
        "IPCSHIM_PROTO=LL|LL128",
        "IPCSHIM_MAX_CHANNELS=0",
        "IPCSHIM_MAX_CHANNELS=17",
        "IPCSHIM_MAX_CHANNELS=4K",
        "IPCSHIM_ENABLE=yes",
        "IPCSHIM_ENABLE=2",
        "IPCSHIM_LINKS=nvlink",
        "IPCSHIM_LOG=debug",
        "IPCSHIM_PROTO=%s%n",
    };
    struct ips_settings standard;
    parse(NULL);
    standard = settings;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        parse(entries[i]);
        if (problems.count != 1 || memcmp(&settings, &standard, sizeof settings) != 0)
            printf("%s\n", entries[i]);
        CHECK(problems.count == 1 && memcmp(&settings, &standard, sizeof settings) == 0);
        CHECK(strstr(problems.text[0], "invalid") != NULL);
    }
    parse("IPCSHIM_PROTO=LL256");
    CHECK(strstr(problems.text[0], "auto|LL|LL128|Simple") != NULL);
    CHECK(strstr(problems.text[0], "the default, auto") != NULL);
}

static void test_unknown(void)
{
    static const char *const near[][2] = {
        {"IPCSHIM_ENABEL=0", "IPCSHIM_ENABLE?"},
        {"IPCSHIM_TUNE=1", "IPCSHIM_TUNE_FILE?"},
        {"IPCSHIM_NCCL=x", "IPCSHIM_NCCL_LIB?"},
        {"IPCSHIM_MAXBYTES=1", "IPCSHIM_MAX_BYTES?"},
        {"IPCSHIM_=", NULL},
    };
    for (size_t i = 0; near[i][1]; i++) {
        parse(near[i][0]);
        CHECK(problems.count == 1 && strstr(problems.text[0], near[i][1]));
    }
    /* A name and value of any length, and more problems than are kept. */
    static char entry[5000] = "IPCSHIM_";
    memset(entry + 8, 'A', 2000);
    entry[2008] = '=';
    memset(entry + 2009, 'B', 2000);
    parse(entry);
    CHECK(problems.count == 1 && strlen(problems.text[0]) < sizeof problems.text[0]);
    char *many[21] = {0};
    for (int i = 0; i < 20; i++)
        many[i] = (char *)"IPCSHIM_WHAT=1";
    ips_settings_parse(many, &settings, &problems);
    CHECK(problems.count == IPS_SETTINGS_PROBLEMS);
}

static void test_differ(void)
{
    char text[256];
    struct ips_policy_settings other = ips_policy_defaults;
    CHECK(ips_settings_differ(&ips_policy_defaults, &other, text, sizeof text) == 0);
    CHECK(text[0] == 0);
    other.max_bytes = 4096;
    other.proto = IPS_SIMPLE;
    CHECK(ips_settings_differ(&ips_policy_defaults, &other, text, sizeof text) == 2);
    CHECK(strstr(text, "IPCSHIM_PROTO (Simple, not auto)"));
    CHECK(strstr(text, "IPCSHIM_MAX_BYTES (4K, not auto)"));
    CHECK(ips_settings_differ(&ips_policy_defaults, &other, text, 8) == 2);
    CHECK(strlen(text) < 8);
}

static void test_print(void)
{
    static const char *const names[] = {
        "IPCSHIM_ENABLE",          "IPCSHIM_PROTO",     "IPCSHIM_ALGO",
        "IPCSHIM_TUNE_FILE",       "IPCSHIM_MAX_BYTES", "IPCSHIM_MAX_CHANNELS",
        "IPCSHIM_LINKS",           "IPCSHIM_MEM_MAX",
        "IPCSHIM_TRACE",           "IPCSHIM_SUMMARY",   "IPCSHIM_LOG",
        "IPCSHIM_NCCL_LIB"};
    for (int format = 0; format < 2; format++) {
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);
        ips_settings_print(out, (enum ips_settings_format)format);
        fclose(out);
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            CHECK(strstr(text, names[i]) != NULL);
        CHECK(strstr(text, format ? "| 256M |" : "(default: 256M)") != NULL);
        /* Every row of the Markdown table has four columns. */
        for (char *line = strtok(text, "\n"); format && line; line = strtok(NULL, "\n")) {
            int bars = 0;
            for (char *at = line; *at; at++)
                bars += *at == '|' && (at == line || at[-1] != '\\');
            CHECK(bars == 5);
        }
        free(text);
    }
}

/* Where the tables of `ipcshim tune` are looked for. */
static void test_tune_file(void)
{
    char path[64];
    setenv("HOME", "/home/me", 1);
    unsetenv("XDG_CACHE_HOME");
    CHECK(!ips_settings_tune_file(NULL, path, sizeof path) &&
          !strcmp(path, "/home/me/.cache/ipcshim/tune"));
    CHECK(ips_settings_tune_file(NULL, path, 10));
    setenv("XDG_CACHE_HOME", "relative", 1);
    CHECK(!ips_settings_tune_file(NULL, path, sizeof path) && !strncmp(path, "/home/me/", 9));
    setenv("XDG_CACHE_HOME", "/cache", 1);
    CHECK(!ips_settings_tune_file(NULL, path, sizeof path) &&
          !strcmp(path, "/cache/ipcshim/tune"));
    CHECK(!ips_settings_tune_file("here", path, sizeof path) && !strcmp(path, "here"));
    CHECK(ips_settings_tune_file("none", path, sizeof path));
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK(ips_settings_tune_file(NULL, path, sizeof path));
}

static void test_nccl_variables(void)
{
    static const struct {
        const char *disable, *level;
        int disabled;
    } cases[] = {
        {NULL, NULL, 0},  {"1", NULL, 1},   {"0", NULL, 0},   {NULL, "LOC", 1},
        {NULL, "NVL", 1}, {NULL, "PIX", 0}, {NULL, "SYS", 0}, {NULL, "0", 1},
        {NULL, "3", 0},   {"0", "LOC", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsetenv("NCCL_P2P_DISABLE");
        unsetenv("NCCL_P2P_LEVEL");
        if (cases[i].disable)
            setenv("NCCL_P2P_DISABLE", cases[i].disable, 1);
        if (cases[i].level)
            setenv("NCCL_P2P_LEVEL", cases[i].level, 1);
        CHECK(ips_settings_p2p_disabled() == cases[i].disabled);
    }
    unsetenv("NCCL_COMM_BLOCKING");
    CHECK(ips_settings_blocking(1) == 1 && ips_settings_blocking(0) == 0);
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    CHECK(ips_settings_blocking(1) == 0);
    setenv("NCCL_COMM_BLOCKING", "7", 1);
    CHECK(ips_settings_blocking(1) == 1);
    unsetenv("NCCL_COMM_ID");
    CHECK(!ips_settings_constant_id());
    setenv("NCCL_COMM_ID", "127.0.0.1:4000", 1);
    CHECK(ips_settings_constant_id());
}

int main(void)
{
    test_defaults();
    test_values();
    test_invalid();
    test_unknown();
    test_differ();
    test_print();
    test_tune_file();
    test_nccl_variables();
    return failures != 0;
}
