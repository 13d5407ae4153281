// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected a pebble.yield at the end of the body
  %y = pebble.sparse_network %x dims [["d0", "4"]] because "" : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    "test.termop"() : () -> ()
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: argument 0 is ?x3 inside and ?x4 outside
  %y = pebble.sparse_network %x dims [["d0", "4"]] because "" : (tensor<?x4xf32>) -> tensor<?x3xf32> {
  ^bb0(%a: tensor<?x3xf32>):
    pebble.yield %a : tensor<?x3xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: 0 results inside, 1 outside
  %y = pebble.sparse_network %x dims [["d0", "4"]] because "" : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    "pebble.yield"() : () -> ()
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: expected dims of 1 operands, got 0
  %y = pebble.sparse_network %x dims [] because "" : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: dims [d0, 5] for operand ?x4
  %y = pebble.sparse_network %x dims [["d0", "5"]] because "" : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    pebble.yield %a : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: pebble.foreign in the body is no layer
  %y = pebble.sparse_network %x dims [["d0", "4"]] because "" : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.foreign "Cos" at 1 reads %a as ["a"] : (tensor<?x4xf32>) -> tensor<?x4xf32>
    pebble.yield %b : tensor<?x4xf32>
  }
  func.return
}

// -----

func.func @main(%x: tensor<?x4xf32>) {
  // CHECK: pebble.add in the body uses a value from outside that is no constant
  %y = pebble.sparse_network %x dims [["d0", "4"]] because "" : (tensor<?x4xf32>) -> tensor<?x4xf32> {
  ^bb0(%a: tensor<?x4xf32>):
    %b = pebble.add %a, %x : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    pebble.yield %b : tensor<?x4xf32>
  }
  func.return
}
