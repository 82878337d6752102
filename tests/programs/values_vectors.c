/* Vector arguments and results up to the widest the processor has: xmm, ymm, zmm, and a run-over onto the stack. */
#include <immintrin.h>
#include "check.h"

TRACED __m128i add_128(__m128i a, __m128i b) { return _mm_add_epi64(a, b); }

__attribute__((target("avx2"))) TRACED __m256i add_256(__m256i a, __m256i b) { return _mm256_add_epi64(a, b); }

/* Ten vectors: the last two lie on the stack, 32-byte aligned. */
__attribute__((target("avx2"))) TRACED __m256d ten_256(__m256d a, __m256d b, __m256d c, __m256d d, __m256d e,
                                                        __m256d f, __m256d g, __m256d h, __m256d i, __m256d j)
{
    __m256d low = _mm256_add_pd(_mm256_add_pd(a, b), _mm256_add_pd(c, d));
    __m256d high = _mm256_add_pd(_mm256_add_pd(e, f), _mm256_add_pd(g, h));
    return _mm256_sub_pd(_mm256_add_pd(low, high), _mm256_add_pd(i, j));
}

__attribute__((target("avx512f"))) TRACED __m512i add_512(__m512i a, __m512i b) { return _mm512_add_epi64(a, b); }

INLINED void check_words(const long *words, int count, long first)
{
    for (int k = 0; k < count; k++)
        EXPECT(words[k] == first + 11 * k);
}

static void narrow(long i)
{
    long words[2];
    _mm_storeu_si128((__m128i *)words, add_128(_mm_set_epi64x(i + 1, i), _mm_set_epi64x(10, 0)));
    check_words(words, 2, i);
}

__attribute__((target("avx2"))) static void wide(long i)
{
    long words[4];
    double sums[4];
    _mm256_storeu_si256((__m256i *)words,
                        add_256(_mm256_set_epi64x(i + 3, i + 2, i + 1, i), _mm256_set_epi64x(30, 20, 10, 0)));
    check_words(words, 4, i);
    __m256d one = _mm256_set_pd(4, 3, 2, 1), x = _mm256_set1_pd((double)i);
    _mm256_storeu_pd(sums, ten_256(x, one, one, one, one, one, one, one, one, x));
    EXPECT(sums[0] == 6 && sums[1] == 12 && sums[2] == 18 && sums[3] == 24);
}

__attribute__((target("avx512f"))) static void widest(long i)
{
    long words[8];
    __m512i up = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), tens = _mm512_set_epi64(70, 60, 50, 40, 30, 20, 10, 0);
    _mm512_storeu_si512(words, add_512(_mm512_add_epi64(_mm512_set1_epi64(i), up), tens));
    check_words(words, 8, i);
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 200000);
    int has_avx2 = __builtin_cpu_supports("avx2") != 0, has_avx512 = __builtin_cpu_supports("avx512f") != 0;
    printf("avx2=%d\navx512=%d\n", has_avx2, has_avx512);
    for (long i = 0; i < rounds; i++) {
        narrow(i);
        if (has_avx2)
            wide(i);
        if (has_avx512)
            widest(i);
    }
    return finish();
}
