/* Small things that several commands print. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "tools/cmd.h"

cJSON* ht_json_document(const char* command)
{
    char   schema[64];
    cJSON* document = cJSON_CreateObject();
    snprintf(schema, sizeof schema, "halftone.%s/1", command);
    cJSON_AddStringToObject(document, "schema", schema);
    return document;
}

ht_status ht_json_print(cJSON* document, ht_error* err)
{
    char* text = cJSON_Print(document);
    cJSON_Delete(document);
    if (!text) { return ht_fail(err, HT_STATUS_NOMEM, "JSON document"); }
    const int code = printf("%s\n", text);
    free(text);
    if (code < 0 || fflush(stdout) != 0) { return ht_fail(err, HT_STATUS_IO, "cannot write to standard output: %s", strerror(errno)); }
    return HT_STATUS_OK;
}

void ht_json_add_number(cJSON* object, const char* key, double value)
{
    char reason_key[96];
    if (isfinite(value)) {
        cJSON_AddNumberToObject(object, key, value);
        return;
    }
    snprintf(reason_key, sizeof reason_key, "%s_reason", key);
    cJSON_AddNullToObject(object, key);
    cJSON_AddStringToObject(object, reason_key, isnan(value) ? "not a number" : "infinite");
}

void ht_json_add_text(cJSON* object, const char* key, const char* text)
{
    char* clean = malloc(4 * strlen(text) + 1);
    if (!clean) { return; }
    cJSON_AddStringToObject(object, key, ht_utf8_clean(text, clean, 4 * strlen(text) + 1));
    free(clean);
}

char* ht_format_bytes(uint64_t n_bytes, char* buf, size_t n_buf)
{
    static const char* const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)n_bytes;
    int    unit  = 0;
    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        unit++;
    }
    snprintf(buf, n_buf, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return buf;
}

double ht_time_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t ht_peak_rss_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

ht_status ht_parse_size(uint64_t* out, const char* option, const char* text, ht_error* err)
{
    static const struct { const char* name; double factor; } units[] = {
        { "", 1.0 }, { "B", 1.0 }, { "kB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "KiB", 1024.0 }, { "MiB", 1048576.0 }, { "GiB", 1073741824.0 },
    };
    char*        end   = NULL;
    const double value = strtod(text, &end);
    while (end && *end == ' ') { end++; }
    for (size_t k = 0; end != text && k < sizeof units / sizeof *units; k++) {
        if (strcasecmp(end, units[k].name) == 0 && value > 0.0 && value * units[k].factor < 1e18) {
            *out = (uint64_t)(value * units[k].factor);
            return HT_STATUS_OK;
        }
    }
    return ht_usage_error(err, "%s: \"%s\" is not a size (a number with kB, MB, GB, KiB, MiB or GiB)", option, text);
}
