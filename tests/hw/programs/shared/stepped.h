/* Results that kernels which step words must give. C and C++. */
#pragma once

#include <stdint.h>

/* The word after so many steps of x -> 1664525 x + 1013904223, by squaring. */
static inline uint32_t Stepped(uint32_t word, unsigned long long steps) {
  uint32_t a = 1664525u, c = 1013904223u;
  for (; steps != 0; steps >>= 1) {
    if (steps & 1) word = word * a + c;
    c = a * c + c;
    a *= a;
  }
  return word;
}

/* Whether each of so many words began at 0 and took that many steps. */
static inline int AllStepped(const volatile uint32_t* words, int count, unsigned long long steps) {
  const uint32_t expected = Stepped(0, steps);
  for (int i = 0; i < count; ++i) {
    if (words[i] != expected) return 0;
  }
  return 1;
}
