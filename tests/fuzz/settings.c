/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the environment: NAME=VALUE texts, one a line. Whatever they hold, every setting
 * ends up in its documented range, and prints. */
#include "shim/settings_table.h"
#include "tests/fuzz/fuzz.h"

static uint64_t value_of(const struct ips_setting *setting,
                         const struct ips_settings *settings)
{
    uint64_t wide = 0;
    uint32_t narrow;
    const char *member = (const char *)settings + setting->offset;
    if (setting->bytes == 8) {
        memcpy(&wide, member, 8);
        return wide;
    }
    memcpy(&narrow, member, 4);
    return narrow;
}

static uint32_t choices_of(const struct ips_setting *setting)
{
    uint32_t count = 1;
    for (const char *at = setting->choices; *at; at++)
        count += *at == '|';
    return count;
}

static void check_range(const struct ips_setting *setting,
                        const struct ips_settings *settings)
{
    uint64_t value = value_of(setting, settings);
    if (setting->kind == CHOICE)
        MUST((uint32_t)value - (uint32_t)setting->first < choices_of(setting));
    else if (setting->kind != TEXT)
        MUST((value >= setting->low && value <= setting->high) ||
             (setting->choices && value == UINT64_MAX));
}

static void check_problems(const struct ips_settings_problems *problems)
{
    MUST(problems->count <= IPS_SETTINGS_PROBLEMS);
    for (unsigned i = 0; i < problems->count; i++) {
        size_t length = strnlen(problems->text[i], sizeof problems->text[i]);
        MUST(length && length < sizeof problems->text[i]);
    }
}

/* Reading what was printed gives the same value. */
static void check_round(const struct ips_setting *setting,
                        const struct ips_settings *settings)
{
    char entry[256], text[64];
    struct ips_settings again;
    struct ips_settings_problems problems;
    ips_setting_format(setting, settings, text, sizeof text);
    if (setting->kind == TEXT)
        return;
    snprintf(entry, sizeof entry, "%s=%s", setting->name, text);
    char *environment[] = {entry, NULL};
    ips_settings_parse(environment, &again, &problems);
    MUST(problems.count == 0 && value_of(setting, &again) == value_of(setting, settings));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_texts texts;
    struct ips_settings settings, standard = ips_settings_defaults();
    struct ips_settings_problems problems;
    char text[512], small[8];
    fuzz_cut(&texts, data, size, '\n');
    ips_settings_parse(texts.text, &settings, &problems);
    check_problems(&problems);
    for (size_t i = 0; i < ips_settings_count; i++) {
        check_range(&ips_settings_table[i], &settings);
        check_round(&ips_settings_table[i], &settings);
    }
    unsigned differ =
        ips_settings_differ(&settings.policy, &standard.policy, text, sizeof text);
    MUST((differ != 0) == (text[0] != 0) && strnlen(text, sizeof text) < sizeof text);
    MUST(ips_settings_differ(&settings.policy, &standard.policy, small, sizeof small) ==
         differ);
    fuzz_free(&texts);
    return 0;
}
