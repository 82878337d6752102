/* The library of selection.cpp: functions that the program imports, that they call, and that nobody does. */
int library_inner(int value);
int library_direct(int value);
int library_unused(int value);

__attribute__((noipa)) int library_inner(int value)
{
    return value + 1;
}

__attribute__((noipa)) int library_direct(int value)
{
    return library_inner(value) * 2;
}

__attribute__((noipa)) int library_unused(int value)
{
    return library_direct(value) + 1;
}
