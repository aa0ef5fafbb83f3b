/* nap.h - the time as all processes of a test see it, and short sleeps. */
#pragma once
#include <stdint.h>

int64_t now_ns(void);
int64_t now_ms(void);
void nap_us(int64_t us);
void nap_ms(int64_t ms);
