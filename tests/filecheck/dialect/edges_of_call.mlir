// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x8xf32>, %i: !pebble.value<"tensor(int64)">, %j: !pebble.value<"tensor(int64)">, %v: tensor<?x1xf32>, %c: tensor<8xf32>) {
  %s, %t, %w = pebble.edge_list of %x from %i to %j weights %v {pebble.dims = [["e"], ["e"], ["e"]]} : (tensor<?x8xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">, tensor<?x1xf32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
  %b, %e, %f, %g = pebble.sort_edges of %x, %s, %t, %w : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
  %y = pebble.aggregate_sorted %x, %b, %e, %f, %g bias %c activation <relu> : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>, tensor<8xf32>) -> tensor<?x8xf32>
  %z = pebble.aggregate_sorted %y, %b, %e, %f, %g maximum : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> tensor<?x8xf32>
  func.return
}

// CHECK:      %s, %t, %w = pebble.edge_list of %x from %i to %j weights %v {pebble.dims = {{\[\["e"\], \["e"\], \["e"\]\]}}} :
// CHECK-NEXT: %b, %e, %f, %g = pebble.sort_edges of %x, %s, %t, %w :
// CHECK-NEXT: %y = pebble.aggregate_sorted %x, %b, %e, %f, %g bias %c activation <relu> :
// CHECK-NEXT: %z = pebble.aggregate_sorted %y, %b, %e, %f, %g maximum :

// GENERIC: "pebble.aggregate_sorted"(%y, %b, %e, %f, %g) <{maximum}>
