/* How library code talks: through a callback that the caller hands in. Library code itself never prints. */
#ifndef HT_BASE_LOG_H
#define HT_BASE_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_log_level { HT_LOG_LEVEL_INFO, HT_LOG_LEVEL_WARN } ht_log_level;

/* Called from the thread that started the work. `text` is one line without a newline, valid during the call only. */
typedef void (*ht_log_fn)(void* user, ht_log_level level, const char* text);

typedef struct ht_log {
    ht_log_fn fn;   /* NULL: silent */
    void*     user;
} ht_log;

/* Format and pass on. A NULL `log` or NULL callback is silence. */
void ht_log_info(const ht_log* log, const char* format, ...) __attribute__((format(printf, 2, 3)));
void ht_log_warn(const ht_log* log, const char* format, ...) __attribute__((format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif
#endif
