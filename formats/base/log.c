#include "formats/base/log.h"

#include <stdarg.h>
#include <stdio.h>

static void emit(const ht_log* log, ht_log_level level, const char* format, va_list args)
{
    char text[1024];
    if (!log || !log->fn) { return; }
    vsnprintf(text, sizeof text, format, args);
    log->fn(log->user, level, text);
}

void ht_log_info(const ht_log* log, const char* format, ...)
{
    va_list args;
    va_start(args, format);
    emit(log, HT_LOG_LEVEL_INFO, format, args);
    va_end(args);
}

void ht_log_warn(const ht_log* log, const char* format, ...)
{
    va_list args;
    va_start(args, format);
    emit(log, HT_LOG_LEVEL_WARN, format, args);
    va_end(args);
}
