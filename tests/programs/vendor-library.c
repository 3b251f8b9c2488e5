/*
 * Stands in for a vendor's user-space driver. Built with
 * -DVERSION_FUNCTION=name and -DVERSION="text".
 */
const char *VERSION_FUNCTION(void);

const char *VERSION_FUNCTION(void)
{
    return VERSION;
}
