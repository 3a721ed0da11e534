/*
 * From names to indexes: a hash table for lookups of keys and tensors by name. Names are not copied: they must outlive the map.
 * Read-only use from several threads is safe.
 */
#ifndef HT_BASE_NAME_MAP_H
#define HT_BASE_NAME_MAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_name_map ht_name_map;

ht_name_map* ht_name_map_create(void);            /* NULL when out of memory */
void         ht_name_map_free(ht_name_map* map);  /* NULL allowed            */

/*
 * Adds name -> index (>= 0). Returns index; the index already there when the name is a duplicate (nothing is changed);
 * HT_NAME_MAP_NOMEM when out of memory.
 */
#define HT_NAME_MAP_NOMEM (-2)
int64_t ht_name_map_add(ht_name_map* map, const char* name, size_t n_bytes, int64_t index);

/* The index, or -1. */
int64_t ht_name_map_find(const ht_name_map* map, const char* name, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
