/* A hook that does nothing: what calling any hook costs. */
int main(void)
{
    return 0;
}
