// A driver library of a later version: what today's has, and a symbol that nobody knew.
extern "C" {
[[gnu::visibility("default")]] int cuInit(unsigned) { return 0; }
[[gnu::visibility("default")]] int cuGetProcAddress(const char*, void**, int, unsigned long) { return 500; }
[[gnu::visibility("default")]] int cuFrobnicate() { return 77; }
}
