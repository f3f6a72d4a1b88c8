//! The journal from outside: its bytes, its rules, and that no damage passes for a promise. Rules
//! are cited by their names in `longhaul_proto::journal`.

mod damage;
mod golden;
mod model;
mod rules;
mod scale;
