/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of `ipcshim tune`: what is sound is read, and of what is not the flaw is told. */
#include "policy/tuned.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"

static struct ips_tuned tuned;

static const struct ips_tuned_machine machine = {
    .library = "1.2.3",
    .wire = 3,
    .driver = 13000,
    .count = 2,
    .gpu = {"0000:3b:00.0 GPU-1", "0000:5e:00.0 GPU-2"}};
#define HEAD                                                  \
    "format = 1\nlibrary = 1.2.3\nwire = 3\ndriver = 13000\n" \
    "gpu = 0000:3b:00.0 GPU-1 NVIDIA A10\ngpu = 0000:5e:00.0 GPU-2\n"

static enum ips_tuned_verdict parse(const char *text, char *reason)
{
    return ips_tuned_parse(text, strlen(text), &machine, 4, IPS_LINK_PCIE, &tuned,
                           reason);
}

static void test_texts(void)
{
    char reason[IPS_TUNED_REASON_BYTES];
    CHECK(parse(HEAD
                "# a remark\n\ntable = 2 pcie\n64 ring LL 1 32 9 9\ntable = 4 pcie\n"
                "1024 nccl - - - 13.25 9 # NCCL\n1024 oneshot LL128 2 256 5.5 4.125\n"
                "2048\ttwoshot  LL 1 256 6 5\r\ntable = 4 host\n64 ring LL 1 32 1 1\n",
                reason) == IPS_TUNED_OK,
          "%s", reason);
    CHECK(tuned.count == 3 && tuned.row[0].nccl && tuned.row[0].times.us[0] == 13.25);
    CHECK(tuned.row[1].candidate.variant == IPS_ONESHOT_LL128 &&
          tuned.row[1].times.us[IPS_MODE_GRAPH] == 4.125 && tuned.row[2].bytes == 2048);
    const struct {
        const char *text;
        enum ips_tuned_verdict verdict;
        const char *reason;
    } cases[] = {
        {HEAD "table = 3 pcie\n64 ring LL 1 32 9 9\n", IPS_TUNED_ABSENT, "4 ranks, pcie"},
        {HEAD, IPS_TUNED_ABSENT, "no table"},
        {"format = 1\ngpu = any\ntable = 4 pcie\n64 ring LL 1 32 9 9\n", IPS_TUNED_OK,
         ""},
        {"", IPS_TUNED_DAMAGED, "format"},
        {"format = 1\n", IPS_TUNED_DAMAGED, "gpu"},
        {"format = 2\n", IPS_TUNED_DAMAGED, "line 1"},
        {"format = 1\nlibrary = 1.2.4\ngpu = 0000:3b:00.0 GPU-1\ngpu = 0000:5e:00.0 "
         "GPU-2\n",
         IPS_TUNED_FOREIGN, "version of ipcshim"},
        {"format = 1\nwire = 2\ngpu = 0000:3b:00.0 GPU-1\ngpu = 0000:5e:00.0 GPU-2\n",
         IPS_TUNED_FOREIGN, "wire"},
        {"format = 1\ndriver = 12080\ngpu = 0000:3b:00.0 GPU-1\ngpu = 0000:5e:00.0 "
         "GPU-2\n",
         IPS_TUNED_FOREIGN, "driver"},
        {"format = 1\ngpu = 0000:3b:00.0 GPU-1\n", IPS_TUNED_FOREIGN, "GPUs"},
        {"format = 1\ngpu = 0000:3b:00.0 GPU-1\ngpu = 0000:5e:00.0 GPU-3\n",
         IPS_TUNED_FOREIGN, "GPUs"},
        {HEAD "64 ring LL 1 32 9 9\n", IPS_TUNED_DAMAGED, "line 7"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 9\n", IPS_TUNED_DAMAGED, "seven words"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 9 9 9\n", IPS_TUNED_DAMAGED,
         "seven words"},
        {HEAD "table = 4 pcie\n64 oneshot Simple 1 32 9 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 17 32 9 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 1 33 9 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 twoshot LL128 1 512 9 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 0 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 -1 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 1,5 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 nan 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n0 ring LL 1 32 9 9\n", IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n99999999999999999999 ring LL 1 32 9 9\n",
         IPS_TUNED_DAMAGED, "seven"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 9 9\n32 ring LL 1 32 9 9\n",
         IPS_TUNED_DAMAGED, "line 9: sizes"},
        {HEAD "table = 4 pcie\n64 ring LL 1 32 9 9\ntable = 4 pcie\n", IPS_TUNED_DAMAGED,
         "already"},
        {HEAD "table = 4 pcie 3\n", IPS_TUNED_DAMAGED, "line 7"},
        {HEAD "table = 4 pcie 2 2\n", IPS_TUNED_DAMAGED, "line 7"},
        {HEAD "table = 9 pcie\n", IPS_TUNED_DAMAGED, "line 7"},
        {HEAD "table = 4 isa\n", IPS_TUNED_DAMAGED, "line 7"},
        {HEAD "colour = red\n", IPS_TUNED_DAMAGED, "unknown key"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(parse(cases[i].text, reason) == cases[i].verdict, "%s: %s", cases[i].text,
              reason);
        CHECK(strstr(reason, cases[i].reason), "%s: %s", cases[i].text, reason);
    }
    char gpu[IPS_TUNED_GPU_BYTES];
    const unsigned char uuid[16] = {0x9a, 0x1e, [15] = 0xff};
    ips_tuned_gpu_text("0000:3b:00.0", uuid, gpu);
    CHECK(!strcmp(gpu, "0000:3b:00.0 GPU-9a1e0000-0000-0000-0000-0000000000ff"), "%s",
          gpu);
}

/* Tables of any length are bounded. */
static void test_long_texts(void)
{
    static char text[IPS_TUNED_BYTES + 64];
    char reason[IPS_TUNED_REASON_BYTES];
    size_t used = (size_t)snprintf(text, sizeof text, HEAD "table = 4 pcie\n");
    for (unsigned i = 0; i < IPS_TUNED_ROWS; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "64 ring LL 1 32 9 9\n");
    CHECK(parse(text, reason) == IPS_TUNED_OK && tuned.count == IPS_TUNED_ROWS);
    snprintf(text + used, sizeof text - used, "64 ring LL 1 32 9 9\n");
    CHECK(parse(text, reason) == IPS_TUNED_DAMAGED && strstr(reason, "too many"));
    used = (size_t)snprintf(text, sizeof text, HEAD "table = 4 pcie\n");
    for (unsigned i = 1; i <= IPS_TUNED_SIZES + 1; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%u ring LL 1 32 9 9\n", i);
    CHECK(parse(text, reason) == IPS_TUNED_DAMAGED && strstr(reason, "too many"));
    memset(text, '\n', sizeof text);
    CHECK(ips_tuned_parse(text, sizeof text, &machine, 4, IPS_LINK_PCIE, &tuned,
                          reason) == IPS_TUNED_DAMAGED);
}

int main(void)
{
    test_texts();
    test_long_texts();
    return check_result();
}
