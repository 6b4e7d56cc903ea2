// Names for clang's thread-safety attributes, which -Wthread-safety checks; nothing with other compilers.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#if defined(__clang__)
#define TESSERA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define TESSERA_THREAD_ATTRIBUTE(x)
#endif

#define TESSERA_CAPABILITY(name) TESSERA_THREAD_ATTRIBUTE(capability(name))
#define TESSERA_SCOPED_CAPABILITY TESSERA_THREAD_ATTRIBUTE(scoped_lockable)
// On a member: it is read and written with the mutex held. PT_: what the pointer points to is.
#define TESSERA_GUARDED_BY(mutex) TESSERA_THREAD_ATTRIBUTE(guarded_by(mutex))
#define TESSERA_PT_GUARDED_BY(mutex) TESSERA_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
// On a mutex: the order in which several are locked.
#define TESSERA_ACQUIRED_BEFORE(...) TESSERA_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
#define TESSERA_ACQUIRED_AFTER(...) TESSERA_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
// On a function: its caller holds the mutex, or must not hold it.
#define TESSERA_REQUIRES(...) TESSERA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define TESSERA_REQUIRES_SHARED(...) TESSERA_THREAD_ATTRIBUTE(requires_shared_capability(__VA_ARGS__))
#define TESSERA_EXCLUDES(...) TESSERA_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define TESSERA_ACQUIRE(...) TESSERA_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define TESSERA_ACQUIRE_SHARED(...) TESSERA_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define TESSERA_RELEASE(...) TESSERA_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define TESSERA_RELEASE_SHARED(...) TESSERA_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define TESSERA_RELEASE_GENERIC(...) TESSERA_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
#define TESSERA_TRY_ACQUIRE(...) TESSERA_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define TESSERA_RETURN_CAPABILITY(x) TESSERA_THREAD_ATTRIBUTE(lock_returned(x))
// On a function whose locking the analysis cannot follow. Say why beside it.
#define TESSERA_NO_THREAD_SAFETY_ANALYSIS TESSERA_THREAD_ATTRIBUTE(no_thread_safety_analysis)
