/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels/ring.h, ll.h and simple.h do about credits, slot reuse and the first burst,
 * small enough for Spin to visit every state: N ranks in a ring, each a block of LANES that
 * move one line of every slot each, through CALLS calls of one to PIECES pieces.
 *
 * Shown for every interleaving: no line is stored over before its reader has read it, a lane
 * that goes on has read the very step that it waited for, nobody waits for ever, and at the
 * end every rank has credit for all that it sent (ips_engine_destroy waits for that).
 *
 * A store is seen at once: one that comes late is a reader that looks late, or, for a credit
 * that nobody has to wait for, an old value (open). What is not ordered is the checker's.
 *
 * EVERY is the number of steps between two credits. SIMPLE: a flag for the whole block in
 * place of lines that carry their step. BROKEN_...: one rule is left out, and Spin must find
 * the error. */
#ifndef N
#define N 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef LANES
#define LANES 2
#endif
#ifndef EVERY
#define EVERY 1
#endif
#ifndef CALLS
#define CALLS 3
#endif
#ifndef PIECES
#define PIECES 1
#endif

#ifdef BROKEN_SLOT_TOO_FEW
#define ROOM (SLOTS - 1)
#else
#define ROOM SLOTS
#endif
#if defined BROKEN_NO_CREDIT_WAIT
#define MAY_SEND(credit, step) true
#elif defined BROKEN_CREDIT_EARLY
#define MAY_SEND(credit, step) (credit + SLOTS + 1 >= step)
#else
#define MAY_SEND(credit, step) (credit + SLOTS >= step)
#endif

#define SENDS (2 * N - 2) /* steps of a piece */
#define NEXT ((me + 1) % N)
#define PREV ((me + N - 1) % N)
#define LINE(rank, step, lane) ((rank * ROOM + (step) % ROOM) * LANES + lane)

/* In each rank's slab. */
byte line[N * ROOM * LANES], flag[N], credit[N];

/* In each block: all its lanes know the same credit whenever they go by it. */
byte arrived[N], known[N];
bit meeting[N];

/* Calls are planned when the first lane gets there, and are alike on all ranks. In short ones
 * only lane 0 has lines to move. */
#define PLANS 4
byte planned, plan_lines[PLANS], plan_pieces[PLANS];

/* For the assertions: the step whose line a lane has read last, or had none to read. */
byte has_read[N * LANES];
byte ended;

inline plan(call)
{
    if
    :: call == planned ->
        if
        :: plan_lines[planned % PLANS] = 1
        :: LANES > 1 -> plan_lines[planned % PLANS] = LANES
        fi;
        select(pieces : 1 .. PIECES);
        plan_pieces[planned % PLANS] = pieces;
        planned++
    :: else
    fi;
    lines = plan_lines[call % PLANS];
    pieces = plan_pieces[call % PLANS]
}

/* A barrier, after which lane 0 stores `value`. */
inline meet_and_store(word, value)
{
    atomic {
        bar = meeting[me];
        arrived[me]++;
        if
        :: arrived[me] == LANES -> arrived[me] = 0; meeting[me] = 1 - bar; word = value
        :: else
        fi
    }
    meeting[me] != bar
}

/* A call begins; what is known of credits may be old. */
inline open()
{
    atomic {
        plan(call);
        bar = meeting[me];
        arrived[me]++;
        if
        :: arrived[me] == LANES ->
            arrived[me] = 0;
            meeting[me] = 1 - bar;
            if
            :: known[me] = credit[me]
            :: true
            fi
        :: else
        fi
    }
    meeting[me] != bar
}

/* A barrier, lane 0 waits, and tells the others in a second one. */
inline meet_and_wait(condition)
{
    atomic { bar = meeting[me]; arrived[me]++ }
    if
    :: atomic {
        lane == 0 && arrived[me] == LANES && condition ->
        arrived[me] = 0;
        meeting[me] = 1 - bar;
        known[me] = credit[me]
       }
    :: meeting[me] != bar
    fi
}

inline post_credit(step)
{
#ifdef BROKEN_CREDIT_BEFORE_BARRIER
    if
    :: lane == 0 -> credit[PREV] = step
    :: else
    fi
#else
    meet_and_store(credit[PREV], step)
#endif
}

/* In one go, since a lane that stores later does no more than one that came later. */
inline receive_and_send(step)
{
    atomic {
#ifndef SIMPLE
        j == 0 || lane >= lines || line[LINE(me, step, lane)] == step ->
#endif
        assert(j == 0 || lane >= lines || line[LINE(me, step, lane)] == step);
        if
        :: j > 0 -> has_read[me * LANES + lane] = step
        :: else
        fi;
        if
        :: j < SENDS && lane < lines ->
            assert(has_read[NEXT * LANES + lane] + SLOTS >= step + 1);
            line[LINE(NEXT, step + 1, lane)] = step + 1
        :: else
        fi
    }
}

inline stage()
{
    if
    :: j < SENDS && !MAY_SEND(known[me], done + j + 1) ->
        meet_and_wait(MAY_SEND(credit[me], done + j + 1))
    :: else
    fi;
#ifdef SIMPLE
    if
    :: j > 0 -> meet_and_wait(flag[me] >= done + j)
    :: else
    fi;
#endif
    receive_and_send(done + j);
#ifdef SIMPLE
    if
    :: j < SENDS -> meet_and_store(flag[NEXT], done + j + 1)
    :: else
    fi;
#endif
    if
    :: j > 0 && (done + j) % EVERY == 0 -> post_credit(done + j)
    :: else
    fi
}

proctype a_lane(byte me; byte lane)
{
    byte call, j, pieces, lines, done;
    bit bar;
    do
    :: call < CALLS ->
        open();
        do
        :: pieces > 0 && j <= SENDS -> stage(); j++
        :: atomic { pieces > 0 && j > SENDS -> j = 0; pieces--; done = done + SENDS }
        :: pieces == 0 -> break
        od;
#ifndef BROKEN_NO_LAST_CREDIT
        if
        :: done % EVERY -> post_credit(done)
        :: else
        fi;
#endif
        call++
    :: else -> break
    od;
    atomic { ended++; assert(credit[me] <= done) }
    ended == N * LANES;
    assert(credit[me] == done)
}

init
{
    byte rank, lane;
    atomic {
        for (rank : 0 .. N - 1) {
            for (lane : 0 .. LANES - 1) {
                run a_lane(rank, lane)
            }
        }
    }
}
