/* draw_claim.c - prints docs/claim.md; run it after a change of claim.def: draw_claim
 * >docs/claim.md */
#include "draw_claim.h"

int main(void)
{
    draw_claim(stdout);
    return fflush(stdout) ? 1 : 0;
}
