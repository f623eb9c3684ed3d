/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the file of `ipcshim doctor --probe`. Whatever it holds, rows that are found are
 * in range, a pair has one answer, and what is refused has a reason. */
#include "policy/verdicts.h"
#include "tests/fuzz/fuzz.h"

static struct ips_verdicts v;

static void check_row(const struct ips_verdict_row *row)
{
    char text[64];
    MUST(row->from < v.gpus && row->from != row->to);
    MUST(row->to < v.gpus || row->to == IPS_VERDICTS_HOST);
    MUST(ips_link_kind_name((int)row->kind) && ips_link_turn_name((int)row->turn) &&
         ips_link_method_name((int)row->method));
    MUST(row->gbps >= 0 && row->gbps <= 1000001);
    ips_verdict_text(&v, row, text, sizeof text); /* cut, at most */
    MUST(strnlen(text, sizeof text) < sizeof text);
}

static void check_pairs(void)
{
    for (unsigned from = 0; from < v.gpus; from++)
        for (unsigned to = 0; to < v.gpus; to++) {
            const struct ips_verdict_row *row = NULL;
            const enum ips_measured found = ips_verdicts_pair(&v, from, to, &row);
            MUST((found == IPS_MEASURED_BROKEN) == (row != NULL));
            MUST(!row || ips_verdict_broken(row));
            MUST(from != to || found == IPS_UNMEASURED);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ips_verdicts_machine now = {"580.82.07", "924db28c-2479", 255};
    char reason[IPS_VERDICTS_REASON_BYTES];
    char *text = malloc(size ? size : 1); /* of its own: a read beyond its end is seen */
    if (!text)
        return 0;
    memcpy(text, data, size);
    const int error = ips_verdicts_parse(text, size, &v, reason);
    free(text);
    const size_t length = strnlen(reason, sizeof reason);
    MUST(length < sizeof reason && (error != 0) == (length != 0));
    if (error)
        return 0;
    MUST(v.gpus && v.gpus <= IPS_VERDICTS_GPUS && v.bridges <= IPS_VERDICTS_BRIDGES);
    for (unsigned i = 0; i < v.rows; i++)
        check_row(&v.row[i]);
    check_pairs();
    ips_verdicts_stale(&v, &now);
    return 0;
}
