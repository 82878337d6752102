/* A small recursive-descent calculator: mutual recursion, callbacks and branches as in ordinary programs. */
#include <ctype.h>
#include "check.h"

struct parser {
    const char *at;
    long variables[26];
};

static long expression(struct parser *parser);

static void blanks(struct parser *parser)
{
    while (*parser->at == ' ')
        parser->at++;
}

static int take(struct parser *parser, char wanted)
{
    blanks(parser);
    if (*parser->at != wanted)
        return 0;
    parser->at++;
    return 1;
}

static long number(struct parser *parser)
{
    long value = 0;
    while (*parser->at >= '0' && *parser->at <= '9')
        value = value * 10 + *parser->at++ - '0';
    return value;
}

static long primary(struct parser *parser)
{
    if (take(parser, '(')) {
        long value = expression(parser);
        take(parser, ')');
        return value;
    }
    if (take(parser, '-'))
        return -primary(parser);
    if (*parser->at >= 'a' && *parser->at <= 'z')
        return parser->variables[*parser->at++ - 'a'];
    return number(parser);
}

static long product(struct parser *parser)
{
    long value = primary(parser);
    for (;;) {
        if (take(parser, '*'))
            value *= primary(parser);
        else if (take(parser, '%')) {
            long divisor = primary(parser);
            value = divisor != 0 ? value % divisor : 0;
        } else
            return value;
    }
}

static long expression(struct parser *parser)
{
    long value = product(parser);
    for (;;) {
        if (take(parser, '+'))
            value += product(parser);
        else if (take(parser, '-'))
            value -= product(parser);
        else
            return value;
    }
}

static int by_value(const void *a, const void *b) { return (*(const long *)a > *(const long *)b) - (*(const long *)a < *(const long *)b); }

static long middle(long *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

int main(int argc, char **argv)
{
    long rounds = rounds_of(argc, argv, 20000);
    for (long i = 0; i < rounds; i++) {
        struct parser parser = {"(a + 3) * -(b - 2 * (a % 7)) + ((a))", {i, i * 3}};
        long a = i, b = i * 3, values[7];
        EXPECT(expression(&parser) == (a + 3) * -(b - 2 * (a % 7)) + a);
        for (long k = 0; k < 7; k++)
            values[k] = (i * 31 + k * 17) % 23;
        long found = middle(values, 7);
        EXPECT(found == values[3] && values[0] <= values[6]);
    }
    return finish();
}
