/* Structures by value, each class of the ABI: two integer words, two vector words, one of each, and in memory. */
#include "check.h"

struct words { long a, b; };
struct floats { float x, y, z, w; }; /* two floats in xmm0, two in xmm1 */
struct mixed { long a; double b; };  /* rax and xmm0 */
struct mixed_other { double a; long b; };
struct odd { char bytes[3]; };
struct large { long v[9]; }; /* returned through a pointer passed in rdi and given back in rax */

TRACED struct words swap_words(struct words s) { return (struct words){s.b, s.a}; }

TRACED struct floats turn(struct floats s) { return (struct floats){s.w, s.x, s.y, s.z}; }

TRACED struct mixed mix(struct mixed s) { return (struct mixed){s.a + 1, s.b * 2}; }

TRACED struct mixed_other mix_other(struct mixed_other s) { return (struct mixed_other){s.a * 2, s.b + 1}; }

TRACED struct odd reverse(struct odd s) { return (struct odd){{s.bytes[2], s.bytes[1], s.bytes[0]}}; }

TRACED struct large shift(struct large s, long by)
{
    for (int i = 0; i < 9; i++)
        s.v[i] += by;
    return s;
}

TRACED long everything(struct words a, struct floats b, struct mixed c, struct large d, struct odd e, struct words f)
{
    return a.a + a.b + (long)(b.x + b.y + b.z + b.w) + c.a + (long)c.b + d.v[0] + d.v[8] + e.bytes[2] + f.a + f.b;
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    for (long i = 0; i < rounds; i++) {
        float f = (float)(i % 999);
        struct words w = swap_words((struct words){i, ~i});
        EXPECT(w.a == ~i && w.b == i);
        struct floats t = turn((struct floats){f, 1, 2, 3});
        EXPECT(t.x == 3 && t.y == f && t.z == 1 && t.w == 2);
        struct mixed m = mix((struct mixed){i, f});
        EXPECT(m.a == i + 1 && m.b == f * 2);
        struct mixed_other o = mix_other((struct mixed_other){f, i});
        EXPECT(o.a == f * 2 && o.b == i + 1);
        struct odd r = reverse((struct odd){{1, 2, (char)(i & 63)}});
        EXPECT(r.bytes[0] == (i & 63) && r.bytes[1] == 2 && r.bytes[2] == 1);
        struct large l = shift((struct large){{0, 1, 2, 3, 4, 5, 6, 7, i}}, 10);
        EXPECT(l.v[0] == 10 && l.v[7] == 17 && l.v[8] == i + 10);
        EXPECT(everything(w, t, m, l, r, w) == ~i + i + (long)(f + 6) + i + 1 + (long)(f * 2) + 10 + i + 10 + 1 - 1);
    }
    return finish();
}
