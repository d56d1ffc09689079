"""One file per framework: `emit(layout, model, cluster, bucket)`; OF: whose layouts it writes."""
