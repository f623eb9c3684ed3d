/* SPDX-License-Identifier: Apache-2.0 */
/* The file of `ipcshim doctor --probe`: what is read from a sound one, which are refused,
 * and what is said of a pair. */
#include <string.h>

#include "policy/verdicts.h"
#include "tests/unit/check.h"

#define HEAD                                                         \
    "# Written by a test\nformat = 1\nmade = 2026-11-30T12:00:00Z\n" \
    "driver = 580.82.07\nboot = 924db28c-2479\ncmdline = 00ff00ff00ff00ff\n"
#define GPUS                                                                         \
    "gpu = 0000:01:00.0 GPU-1 a name\ngpu = 0000:0A:00.0 GPU-2\ngpu = 0001:01:00.0 " \
    "GPU-3\n"
#define BRIDGES "acs = 0000:00:01.0 001d\nacs = 0000:00:02.0 unknown\n"
#define ROWS                                                     \
    "0000:01:00.0 0000:0A:00.0 alone store ok 24.5\n"            \
    "0000:01:00.0 0000:0A:00.0 alone load ok 12 # as measured\n" \
    "0000:01:00.0 0000:0A:00.0 alone copy ok 24\n"               \
    "0000:0A:00.0 0000:01:00.0 alone store ok 24\n"              \
    "0000:0A:00.0 0000:01:00.0 alone load ok 24\n"               \
    "0000:0A:00.0 0000:01:00.0 alone copy ok 24\n"               \
    "0000:0A:00.0 0000:01:00.0 ring store corrupts -\n"          \
    "0001:01:00.0 0000:01:00.0 alone store unsupported -\n"      \
    "0001:01:00.0 host alone load drops -\n"

static struct ips_verdicts v;
static char reason[IPS_VERDICTS_REASON_BYTES];

static int parse(const char *text)
{
    return ips_verdicts_parse(text, strlen(text), &v, reason);
}

static void sound(void)
{
    const struct ips_verdict_row *row = NULL;
    char text[160];
    CHECK(!parse(HEAD GPUS BRIDGES ROWS), "%s", reason);
    CHECK(v.gpus == 3 && v.rows == 9 && v.bridges == 2, "%u %u", v.gpus, v.rows);
    CHECK(v.machine.cmdline == 0x00ff00ff00ff00ffull);
    CHECK(!strcmp(v.made, "2026-11-30T12:00:00Z"));
    CHECK(v.bridge[0].acs == 0x1d && v.bridge[1].acs == -1);
    CHECK(v.row[0].gbps > 24.4 && v.row[0].gbps < 24.6);
    CHECK(!strcmp(v.gpu[1][0], "0000:0a:00.0"), "as in sysfs");
    CHECK(ips_verdicts_gpu(&v, "0000:0a:00.0", "GPU-2") == 1);
    CHECK(ips_verdicts_gpu(&v, "0000:0A:00.0", NULL) == 1);
    CHECK(ips_verdicts_gpu(&v, "0000:0a:00.0", "GPU-1") == -1);
    CHECK(ips_verdicts_pair(&v, 0, 1, &row) == IPS_MEASURED_SOUND && !row);
    CHECK(ips_verdicts_pair(&v, 2, 0, &row) == IPS_UNMEASURED && !row);
    CHECK(ips_verdicts_pair(&v, 0, 2, &row) == IPS_UNMEASURED && !row);
    CHECK(ips_verdicts_pair(&v, 1, 0, &row) == IPS_MEASURED_BROKEN && row == &v.row[6]);
    ips_verdict_text(&v, row, text, sizeof text);
    CHECK(!strcmp(text, "stores of GPU 0000:0a:00.0 to GPU 0000:01:00.0 arrive changed "
                        "(corrupts, while all of the ring do)"),
          "%s", text);
    ips_verdict_text(&v, &v.row[8], text, sizeof text);
    CHECK(!strcmp(text, "loads of GPU 0001:01:00.0 from host memory are lost (drops)"),
          "%s", text);
}

static void stale(void)
{
    struct ips_verdicts_machine now;
    CHECK(!parse(HEAD GPUS));
    now = v.machine;
    CHECK(!ips_verdicts_stale(&v, &now));
    now.driver[0] = 0; /* not known here */
    CHECK(!ips_verdicts_stale(&v, &now));
    strcpy(now.driver, "580.82.08");
    CHECK(ips_verdicts_stale(&v, &now));
    now = v.machine;
    now.cmdline++;
    CHECK(ips_verdicts_stale(&v, &now));
    now = v.machine;
    now.boot[0] = 0;
    CHECK(ips_verdicts_stale(&v, &now));
    strcpy(now.boot, "924db28c-2478");
    CHECK(ips_verdicts_stale(&v, &now));
}

/* A driver of before was another: its verdict must not stand for any. */
static void refused(void)
{
    static const char *const bad[] = {
        "",
        "format = 2\n",
        HEAD,
        GPUS ROWS,
        HEAD GPUS "gpu = 0000:01:00.0 GPU-4\n",
        HEAD GPUS "gpu = 0000:0a:00.0 GPU-4\n",
        HEAD ROWS GPUS,
        HEAD GPUS ROWS "gpu = 0000:77:00.0 GPU-4\n",
        HEAD GPUS "colour = red\n",
        HEAD GPUS "acs = 0000:00:01.0 0x1d\n",
        HEAD GPUS "acs = 0000:00:01.0 10000\n",
        HEAD GPUS "acs = 0000:00:01.0\n",
        HEAD GPUS "0000:01:00.0 0000:0A:00.0 alone store ok\n",
        HEAD GPUS "0000:01:00.0 0000:0A:00.0 alone store fine 1\n",
        HEAD GPUS "0000:01:00.0 0000:0A:00.0 alone store ok -1\n",
        HEAD GPUS "0000:01:00.0 0000:0A:00.0 alone store ok 1e3\n",
        HEAD GPUS "0000:01:00.0 0000:0A:00.0 alone write ok 1\n",
        HEAD GPUS "0000:01:00.0 0000:0A:00.0 twice store ok 1\n",
        HEAD GPUS "0000:01:00.0 0000:01:00.0 alone store ok 1\n",
        HEAD GPUS "0000:01:00.0 0000:02:00.0 alone store ok 1\n",
        HEAD GPUS "host 0000:01:00.0 alone store ok 1\n",
        HEAD GPUS
        "0000:01:00.0 host alone store ok 1\n0000:01:00.0 host alone store ok 1\n",
        HEAD "gpu = 0000:01:00.0 GPU-1-and-so-on-and-so-on-and-so-on-and-so-on-and\n",
        HEAD "gpu = 0000:01:00.0\n",
        "format = 1\ndriver = 5\nboot = 9\ngpu = 0000:01:00.0 GPU-1\n",
        "format = 1\ndriver = 5\ncmdline = 9\ngpu = 0000:01:00.0 GPU-1\n",
        "format = 1\nboot = 5\ncmdline = 9\ngpu = 0000:01:00.0 GPU-1\n",
        HEAD "made = \033[31m\n" GPUS,
        HEAD "gpu = 0000:01:00.0 GPU-\303\251\n",
        HEAD "boot = 1 2\n" GPUS,
        HEAD "cmdline = 123456789abcdef01\n" GPUS,
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(parse(bad[i]) && *reason, "%zu", i);
    CHECK(ips_verdicts_parse(NULL, IPS_VERDICTS_BYTES + 1, &v, reason) && *reason);
}

static void names(void)
{
    for (int kind = 0; kind < IPS_LINK_KINDS; kind++) {
        const struct ips_verdict_row row = {.kind = (enum ips_link_kind)kind};
        CHECK(ips_link_kind_name(kind) != NULL);
        CHECK(ips_verdict_broken(&row) ==
              (kind != IPS_LINK_OK && kind != IPS_LINK_UNSUPPORTED));
    }
    CHECK(!ips_link_kind_name(IPS_LINK_KINDS) && !ips_link_kind_name(-1));
    CHECK(!ips_link_turn_name(IPS_LINK_TURNS) && !ips_link_method_name(IPS_LINK_METHODS));
}

static void described(void)
{
    struct ips_verdicts_machine m;
    ips_verdicts_describe(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  "
        "Release Build\nGCC version: gcc 13.2.0",
        13000, "924d-2479\n", "a\n", &m);
    CHECK(!strcmp(m.driver, "580.82.07") && !strcmp(m.boot, "924d-2479"), "%s", m.driver);
    CHECK(m.cmdline == 0xaf63dc4c8601ec8cull); /* FNV-1a's own test vector of "a" */
    ips_verdicts_describe("", 13000, "", "", &m);
    CHECK(!strcmp(m.driver, "cuda-13000") && !*m.boot &&
          m.cmdline == 0xcbf29ce484222325ull);
    ips_verdicts_describe("\n1.2", 0, "\n5", "a", &m);
    CHECK(!*m.driver && !*m.boot, "%s %s", m.driver, m.boot);
}

int main(void)
{
    sound();
    stale();
    refused();
    names();
    described();
    return check_result();
}
