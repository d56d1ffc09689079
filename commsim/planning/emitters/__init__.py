"""One file per framework: `emit(layout, model, cluster)`; OF: whose layouts it writes."""
