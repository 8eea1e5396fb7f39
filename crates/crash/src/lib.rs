//! The crash-consistency checker: explores the power cuts a structure must survive.
