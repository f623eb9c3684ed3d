/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the file of `ipcshim tune`. Whatever it holds, a table that is found is in range
 * and sorted, a plan made from it is valid, and what is refused has a reason. */
#include "policy/plan.h"
#include "tests/fuzz/fuzz.h"

static void check_rows(const struct ips_tuned *tuned)
{
    uint64_t last = 0;
    MUST(tuned->count && tuned->count <= IPS_TUNED_ROWS);
    for (unsigned i = 0; i < tuned->count; i++) {
        const struct ips_tuned_row *row = &tuned->row[i];
        const struct ips_candidate *c = &row->candidate;
        MUST(row->bytes && row->bytes >= last);
        last = row->bytes;
        for (int mode = 0; mode < IPS_MODES; mode++)
            MUST(row->times.us[mode] > 0 && row->times.us[mode] < 1e10);
        MUST(row->nccl || (c->variant < IPS_VARIANTS && c->channels >= 1 &&
                           c->channels <= IPS_MAX_CHANNELS && c->threads >= 32 &&
                           c->threads <= ips_variant_max_threads((int)c->variant)));
    }
}

static void check_plan(const struct ips_tuned *tuned)
{
    struct ips_policy_settings settings = ips_policy_defaults;
    struct ips_policy_place place = {tuned->ranks, tuned->link, IPS_MAX_CHANNELS, 0, 0};
    struct ips_policy_plan plan;
    for (unsigned turn = 0; turn < 4; turn++) {
        settings.max_bytes = turn % 2 ? 100000 : IPS_MAX_BYTES_AUTO;
        settings.max_channels = turn / 2 ? 3 : IPS_MAX_CHANNELS;
        place.group = turn * tuned->ranks / 4;
        ips_policy_plan_make(&settings, &place, tuned, &plan);
        MUST(ips_policy_plan_valid(&plan, sizeof plan, tuned->ranks,
                                   settings.max_channels));
        MUST(ips_policy_decide(&plan, UINT64_MAX / 2, IPS_INT8, IPS_SUM).route ==
             IPS_ROUTE_NCCL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ips_tuned_machine machine = {
        .library = "0.1.0",
        .wire = 3,
        .driver = 13000,
        .count = 1,
        .gpu = {"0000:01:00.0 GPU-73696d67-7075-2d64-6576-6963652d8000"}};
    static struct ips_tuned tuned;
    char reason[IPS_TUNED_REASON_BYTES];
    char *text = malloc(size ? size : 1); /* of its own: a read beyond its end is seen */
    if (!text)
        return 0;
    memcpy(text, data, size);
    for (unsigned turn = 0; turn < 4; turn++) {
        const enum ips_tuned_verdict verdict =
            ips_tuned_parse(text, size, turn & 1 ? NULL : &machine, turn & 2 ? 2 : 4,
                            IPS_LINK_PCIE, &tuned, reason);
        const size_t length = strnlen(reason, sizeof reason);
        MUST(length < sizeof reason && (verdict == IPS_TUNED_OK) == (length == 0));
        if (verdict != IPS_TUNED_OK)
            continue;
        check_rows(&tuned);
        check_plan(&tuned);
    }
    free(text);
    return 0;
}
