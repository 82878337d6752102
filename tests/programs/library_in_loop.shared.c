/* What library_in_loop.c loads. */
#include "check.h"

static long loaded;

TRACED long library_inner(long x) { return x + loaded; }

TRACED long library_function(long x) { return library_inner(x) + 1; }

__attribute__((constructor)) TRACED void library_start(void) { loaded = 1; }

__attribute__((destructor)) TRACED void library_end(void) { loaded = 0; }
