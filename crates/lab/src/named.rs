//! Choices that have names, the same on the command line, in tables and in JSON.

/// Declares an enum of which each variant has a name.
macro_rules! named {
    (
        $(#[$about:meta])*
        pub enum $type:ident { $($(#[$meta:meta])* $variant:ident = $name:literal),* $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$meta])* $variant),* }

        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// What it is called.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }
    };
}
pub(crate) use named;
