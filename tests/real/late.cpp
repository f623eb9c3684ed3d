// SPDX-License-Identifier: Apache-2.0
// The youngest functions, whose types the shim spells otherwise: argument for argument, the
// shim's declaration and the release's must travel alike. Compiled only. declared.inc has a
// COMPARE(name) for each of them that this release declares.
#include <nccl.h>

#include <cstdint>
#include <type_traits>

#ifdef ncclResetDebugInit // 2.29 and later: a macro for programs, and still exported
#undef ncclResetDebugInit
extern "C" void ncclResetDebugInit();
#endif

namespace ours
{
#define LATE_TRACED(name, parameters, arguments, count, type, op) int name parameters;
#define LATE_PLAIN(name, parameters, arguments) int name parameters;
#define LATE_VOID(name, parameters, arguments) void name parameters;
#define LATE_OWN(name, parameters, arguments) int name parameters;
#include "shim/api.def"
} // namespace ours

// Enums and integers of one size travel alike, and so do all pointers; nothing else is here.
template <class A, class B> constexpr bool alike()
{
    if constexpr (std::is_void_v<A> || std::is_void_v<B>)
        return std::is_void_v<A> && std::is_void_v<B>;
    else if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
        return std::is_pointer_v<A> && std::is_pointer_v<B>;
    else
        return sizeof(A) == sizeof(B) && (std::is_integral_v<A> || std::is_enum_v<A>) &&
               (std::is_integral_v<B> || std::is_enum_v<B>);
}

template <class A, class B> struct same : std::false_type {
};
template <class R, class S, class... A, class... B>
struct same<R(A...), S(B...)>
    : std::bool_constant<sizeof...(A) == sizeof...(B) && alike<R, S>()> {
    static_assert(sizeof...(A) == sizeof...(B), "another number of arguments");
    static_assert((alike<A, B>() && ...), "an argument travels otherwise");
};

#define COMPARE(name) static_assert(same<decltype(::name), decltype(ours::name)>::value, #name);
#include "tests/real/declared.inc"
