/* The call tree: calls merged by the path of functions that leads to them. Memory grows with the paths alone. */
#include "columns.h"
#include "nesting.h"

#include <shadowgraph/records.h>

/* Up to when a node's time has been counted, in the thread that was seen last. */
struct counted {
    int64_t until;
    uint32_t thread; /* plus one */
};

struct sg_tree {
    struct nest nest;
    struct sg_tree_node *nodes;
    struct counted *counted;
    uint32_t *last_child; /* of each node: the child that was looked for last */
    uint32_t *table;      /* hash table of (parent, function): node number, 0 where free */
    uint64_t table_mask;
    uint32_t count, capacity;
    uint32_t roots;
    uint32_t thread; /* the present one, plus one; 0: none yet */
};

/* A tree with this many roots, which are nodes 0 to roots - 1; NULL where memory ran out. */
struct sg_tree *sg_tree_create(uint32_t roots)
{
    struct sg_tree *tree = calloc(1, sizeof(*tree));

    if (!tree)
        return NULL;
    tree->capacity = 2 * roots + 1024;
    tree->table_mask = 4095;
    while (tree->table_mask < 2 * (uint64_t)tree->capacity)
        tree->table_mask = 2 * tree->table_mask + 1;
    tree->nodes = calloc(tree->capacity, sizeof(*tree->nodes));
    tree->counted = calloc(tree->capacity, sizeof(*tree->counted));
    tree->last_child = calloc(tree->capacity, sizeof(*tree->last_child));
    tree->table = calloc(tree->table_mask + 1, sizeof(*tree->table));
    if (!tree->nodes || !tree->counted || !tree->last_child || !tree->table || !nest_init(&tree->nest)) {
        sg_tree_destroy(tree);
        return NULL;
    }
    tree->roots = tree->count = roots;
    for (uint32_t root = 0; root < roots; root++)
        tree->nodes[root] = (struct sg_tree_node){.parent = root, .function = SG_FUNCTION_NONE};
    return tree;
}

void sg_tree_destroy(struct sg_tree *tree)
{
    nest_deinit(&tree->nest);
    free(tree->nodes);
    free(tree->counted);
    free(tree->last_child);
    free(tree->table);
    free(tree);
}

static uint64_t hash(uint32_t parent, uint32_t function)
{
    uint64_t key = ((uint64_t)parent << 32 | function) * UINT64_C(0x9e3779b97f4a7c15);

    return key ^ key >> 29;
}

/* The place of a node in the table, or the free place where it belongs. */
static uint64_t look_up(const struct sg_tree *tree, uint32_t parent, uint32_t function)
{
    uint64_t place = hash(parent, function) & tree->table_mask;

    while (tree->table[place]) {
        const struct sg_tree_node *node = &tree->nodes[tree->table[place]];
        if (node->parent == parent && node->function == function)
            break;
        place = (place + 1) & tree->table_mask;
    }
    return place;
}

static bool grow(struct sg_tree *tree)
{
    uint32_t capacity = tree->capacity * 2;
    uint64_t size = (tree->table_mask + 1) * 2;
    struct sg_tree_node *nodes = realloc(tree->nodes, capacity * sizeof(*nodes));
    struct counted *counted;
    uint32_t *last_child, *table;

    if (!nodes)
        return false;
    tree->nodes = nodes;
    counted = realloc(tree->counted, capacity * sizeof(*counted));
    if (!counted)
        return false;
    tree->counted = counted;
    last_child = realloc(tree->last_child, capacity * sizeof(*last_child));
    if (!last_child)
        return false;
    tree->last_child = last_child;
    table = calloc(size, sizeof(*table));
    if (!table)
        return false;
    free(tree->table);
    tree->table = table;
    tree->table_mask = size - 1;
    tree->capacity = capacity;
    for (uint32_t node = tree->roots; node < tree->count; node++)
        tree->table[look_up(tree, nodes[node].parent, nodes[node].function)] = node;
    return true;
}

/* The child of a node for a function, made if there is none; 0 where memory ran out. */
static uint32_t child_of(struct sg_tree *tree, uint32_t parent, uint32_t function)
{
    uint32_t child = tree->last_child[parent];
    uint64_t place;

    if (child && tree->nodes[child].function == function)
        return child;
    place = look_up(tree, parent, function);
    child = tree->table[place];
    if (!child) {
        if (tree->count == tree->capacity) {
            if (tree->count > UINT32_MAX / 2 || !grow(tree))
                return 0;
            place = look_up(tree, parent, function);
        }
        child = tree->count++;
        tree->nodes[child] = (struct sg_tree_node){.parent = parent, .function = function};
        tree->counted[child] = (struct counted){0, 0};
        tree->last_child[child] = 0;
        tree->table[place] = child;
    }
    tree->last_child[parent] = child;
    return child;
}

/*
 * A call of the node was in flight from start to end: its total is the time in which at least one was. Calls of one path
 * follow each other, those of coroutines overlap, and what is below such a call may outlast it: then the sum of durations
 * is more than there was time. Calls come in the order of their starts.
 */
static void count_time(struct sg_tree *tree, uint32_t node, int64_t start, int64_t end)
{
    struct counted *counted = &tree->counted[node];

    if (counted->thread != tree->thread)
        *counted = (struct counted){start, tree->thread};
    if (end <= counted->until)
        return;
    tree->nodes[node].total += end - (start > counted->until ? start : counted->until);
    counted->until = end;
}

/* Take in calls; root_of_thread has threads entries, the last one for all beyond. False where memory ran out. */
int32_t sg_tree_feed(struct sg_tree *tree, const struct sg_batch *batch, const uint32_t *root_of_thread,
                     uint32_t threads)
{
    struct nest *nest = &tree->nest;

    for (int64_t at = 0; at < batch->count; at++) {
        uint32_t thread = batch->thread[at], caller, root, parent, child;
        int64_t start = batch->start[at], duration = batch->duration[at], end, limit = INT64_MAX;

        if (thread + 1 != tree->thread) {
            nest_clear(nest);
            tree->thread = thread + 1;
        }
        if (duration < 0)
            duration = 0;
        end = start + duration;
        caller = nest_caller(nest, start, end, batch->depth[at]);
        root = parent = root_of_thread[thread < threads ? thread : threads - 1];
        if (caller) {
            parent = nest->calls[caller].label;
            limit = nest->calls[caller].end;
        }
        child = child_of(tree, parent, batch->function[at]);
        if (!child || !nest_enter(nest, start, end, batch->depth[at], child))
            return false;
        tree->nodes[parent].self -= (end < limit ? end : limit) - start;
        tree->nodes[child].calls++;
        count_time(tree, root, start, end);
        count_time(tree, child, start, end);
        tree->nodes[child].self += duration;
        tree->nodes[child].open += batch->kind[at] == SG_KIND_OPEN;
        tree->nodes[child].unwound += batch->kind[at] == SG_KIND_UNWOUND;
    }
    return true;
}

/* How many nodes there are; a parent always has a smaller number than its children. */
uint32_t sg_tree_count(const struct sg_tree *tree)
{
    return tree->count;
}

void sg_tree_finish(const struct sg_tree *tree, struct sg_tree_node *nodes)
{
    memcpy(nodes, tree->nodes, tree->count * sizeof(*nodes));
}
