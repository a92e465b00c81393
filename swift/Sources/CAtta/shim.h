/* The installed header, for the module of Linux. */
#include <atta.h>
