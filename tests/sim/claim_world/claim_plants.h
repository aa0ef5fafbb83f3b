/* claim_plants.h - the bugs that the simulator can plant, each of which it must find. They live in
 * the model of the server and around the claim's step function, never in the product. Included once
 * by each program. */
#pragma once

#define PLANTS(X)                                                                                  \
    X(NONE, "none", "")                                                                            \
    X(ARRIVAL, "arrival", "a grant is counted from the arrival of its news")                       \
    X(NO_DRIFT, "no-drift", "the drift is not taken off")                                          \
    X(REVIVE, "revive", "a renewal revives a hold that has ended")                                 \
    X(SHORTEN, "shorten", "a renewal may shorten the hold")                                        \
    X(RELEASE_ANY, "release-any", "a release does not look at the attempt")                        \
    X(NO_LEAVE, "no-leave", "a time-out forgets to leave the queue")                               \
    X(LATE_GRANT, "late-grant", "a grant that comes while leaving is ignored")                     \
    X(NO_DOUBT, "no-doubt", "a request without answer raises no doubt")                            \
    X(NO_TOMBSTONE, "no-tombstone", "a release with doubt leaves no tombstone")                    \
    X(BARGE, "barge", "a newcomer passes the queue")                                               \
    X(NO_HAND_OVER, "no-hand-over", "a release wakes nobody")                                      \
    X(SAME_TOKEN, "same-token", "a hand-over repeats the token")                                   \
    X(DEAF_TO_END, "deaf-to-end",                                                                  \
      "the end of the belief is not noticed while a renewal is in flight")                         \
    X(UPGRADE_KEEPS, "upgrade-keeps", "an upgrade keeps the token")                                \
    X(UPGRADE_AMONG, "upgrade-among", "an upgrade does not look for other readers")                \
    X(BUSY_DROPS, "busy-drops", "an upgrade that is refused costs the read hold")                  \
    X(DOWNGRADE_ALONE, "downgrade-alone", "a downgrade admits nobody")                             \
    X(TIED_TOKEN, "tied-token",                                                                    \
      "a renewal is tied to the token from before an upgrade without answer")                      \
    X(LATE_DOWNGRADE, "late-downgrade",                                                            \
      "an upgrade is believed while a downgrade may still be under way")                           \
    X(STALE_ANSWER, "stale-answer", "an answer that comes twice ends the next request, too")       \
    X(MIXED_OUTCOME, "mixed-outcome", "who upgrades hears the outcome of the extend behind it")    \
    X(PUT_OFF, "put-off", "conversions and checks put the renewal off")                            \
    X(COUNT_TWICE, "count-twice", "an ask that comes twice counts twice")                          \
    X(RELEASE_ALL, "release-all", "the release of one level releases all")                         \
    X(DEAF_TO_OWNER, "deaf-to-owner", "an owner waits for itself")                                 \
    X(SHORT_CHANGED, "short-changed", "a grant for less than the ttl is not extended")

#include "sim/plant_selection.h"
