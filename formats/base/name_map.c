#include "formats/base/name_map.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Open addressing, linear probing, at most half full; capacity is a power of two. */
typedef struct slot {
    const char* name; /* NULL: free */
    size_t      n_bytes;
    uint64_t    hash;
    int64_t     index;
} slot;

struct ht_name_map {
    slot*  slots;
    size_t capacity, n_used;
};

/* FNV-1a, then a finaliser: the low bits pick the slot. */
static uint64_t hash_of(const char* name, size_t n_bytes)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n_bytes; i++) { h = (h ^ (unsigned char)name[i]) * 0x100000001B3u; }
    return h ^ h >> 29;
}

/* The slot of the name, or the free one where it belongs. */
static slot* locate(const ht_name_map* map, const char* name, size_t n_bytes, uint64_t hash)
{
    for (size_t i = hash & (map->capacity - 1);; i = (i + 1) & (map->capacity - 1)) {
        slot* s = &map->slots[i];
        if (!s->name || (s->hash == hash && s->n_bytes == n_bytes && memcmp(s->name, name, n_bytes) == 0)) { return s; }
    }
}

ht_name_map* ht_name_map_create(void)
{
    ht_name_map* map = calloc(1, sizeof *map);
    if (!map) { return NULL; }
    map->capacity = 64;
    map->slots    = calloc(map->capacity, sizeof *map->slots);
    if (!map->slots) {
        free(map);
        return NULL;
    }
    return map;
}

void ht_name_map_free(ht_name_map* map)
{
    if (!map) { return; }
    free(map->slots);
    free(map);
}

static bool grow(ht_name_map* map)
{
    const slot*  old   = map->slots;
    const size_t n_old = map->capacity;
    slot*        slots = calloc(n_old * 2, sizeof *slots);
    if (!slots) { return false; }
    map->slots    = slots;
    map->capacity = n_old * 2;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i].name) { *locate(map, old[i].name, old[i].n_bytes, old[i].hash) = old[i]; }
    }
    free((void*)(uintptr_t)old);
    return true;
}

int64_t ht_name_map_add(ht_name_map* map, const char* name, size_t n_bytes, int64_t index)
{
    const uint64_t hash = hash_of(name, n_bytes);
    slot*          s    = locate(map, name, n_bytes, hash);
    if (s->name) { return s->index; }
    if ((map->n_used + 1) * 2 > map->capacity) {
        if (!grow(map)) { return HT_NAME_MAP_NOMEM; }
        s = locate(map, name, n_bytes, hash);
    }
    *s = (slot){ name, n_bytes, hash, index };
    map->n_used++;
    return index;
}

int64_t ht_name_map_find(const ht_name_map* map, const char* name, size_t n_bytes)
{
    const slot* s = locate(map, name, n_bytes, hash_of(name, n_bytes));
    return s->name ? s->index : -1;
}
