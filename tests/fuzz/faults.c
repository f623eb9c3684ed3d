/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes what tests ask of the stand-ins: the rules of SIMGPU_FAIL. */
#include <fcntl.h>
#include <signal.h>

#include "tests/fuzz/fuzz.h"

#define fprintf(file, ...) ((void)snprintf(complaint, sizeof complaint, __VA_ARGS__))
static char complaint[64];
#define raise(signal) ((void)(signal)) /* a rule may ask for one */
#include "tools/simgpu/fault.c"
#undef fprintf
#undef raise

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_texts texts;
    fuzz_cut(&texts, data, size, '\0');
    memset(rules, 0, sizeof rules);
    rule_count = 0;
    ready = 1;
    for (size_t i = 0; i < texts.count; i++)
        parse_rules(texts.text[i]);
    MUST(rule_count <= RULES_MAX);
    for (int i = 0; i < rule_count; i++) {
        MUST(strnlen(rules[i].function, sizeof rules[i].function) <
             sizeof rules[i].function);
        MUST(rules[i].function[0] && !strpbrk(rules[i].function, ":,"));
        sim_fault("SIMGPU", rules[i].function);
    }
    fuzz_free(&texts);
    return 0;
}
